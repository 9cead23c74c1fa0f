//! Tables, which `kubectl get` prints.

mod cells;
mod json_path;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::answer::list_meta;
use crate::{
    api_error::ApiError,
    kinds::{Column, Kind, definitions},
    store::{List, from_stored},
};

/// Makes tables of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub kind: &'static Kind,
    pub now: DateTime<Utc>,
    pub include: Include,
}

/// The part of an object that is sent with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// The query's `includeObject`.
    pub fn of(text: &str) -> Result<Self, ApiError> {
        match text {
            "None" => Ok(Self::Nothing),
            "Object" => Ok(Self::Object),
            "" | "Metadata" => Ok(Self::Metadata),
            other => {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let why = format!("includeObject: Invalid value: {other:?}: {why}");
                let why = format!("Unable to convert to Table as requested: {why}");
                Err(ApiError::bad_request(why))
            }
        }
    }
}

impl Table {
    pub fn of_list(self, list: &List) -> Value {
        let rows = list.items.iter().map(|object| self.row(object)).collect();
        self.table(list_meta(list), rows, true)
    }

    pub fn of_object(self, object: &Value) -> Value {
        self.of_event(object, true)
    }

    /// A watch sends the columns once.
    pub fn of_event(self, object: &Value, with_columns: bool) -> Value {
        let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
        self.table(metadata, vec![self.row(object)], with_columns)
    }

    fn table(self, metadata: Value, rows: Vec<Value>, with_columns: bool) -> Value {
        let columns = with_columns.then(|| columns(self.kind).iter().map(definition).collect());
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns.unwrap_or(Value::Null), "rows": rows,
        })
    }

    fn row(self, object: &Value) -> Value {
        let mut row = json!({ "cells": self.cells(object) });
        match self.include {
            Include::Nothing => row["object"] = Value::Null,
            Include::Metadata => row["object"] = partial(object),
            Include::Object => row["object"] = from_stored(self.kind, object).into_owned(),
        }
        row
    }

    fn cells(self, object: &Value) -> Vec<Value> {
        let Some(crd) = &self.kind.crd else { return cells::of(self.kind, object, self.now) };
        let own = crd.columns.iter().map(|column| self.cell(column, object));
        std::iter::once(object["metadata"]["name"].clone()).chain(own).collect()
    }

    fn cell(self, column: &Column, object: &Value) -> Value {
        let Some(value) = json_path::first(&column.path, object) else { return Value::Null };
        match (column.r#type.as_str(), value) {
            ("date", Value::String(time)) => match DateTime::parse_from_rfc3339(time) {
                Ok(time) => cells::age(time.to_utc(), self.now).into(),
                Err(_) => "<invalid>".into(),
            },
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", other) => other.to_string().into(),
            (_, other) => other.clone(),
        }
    }
}

/// An object's metadata alone.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// A list of metadata alone.
pub(super) fn partial_list(list: &List) -> Value {
    let items: Vec<Value> = list.items.iter().map(|object| partial(object)).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta(list), "items": items,
    })
}

fn columns(kind: &Kind) -> Vec<Column> {
    let Some(crd) = &kind.crd else { return cells::columns(kind) };
    let name = Column {
        name: "Name".into(),
        r#type: "string".into(),
        format: "name".into(),
        description: documented("ObjectMeta.name"),
        ..Column::default()
    };
    std::iter::once(name).chain(crd.columns.iter().cloned()).collect()
}

/// The description of a field in the schema of its type.
fn documented(place: &str) -> String {
    let (name, field) = place.split_once('.').unwrap_or((place, ""));
    let mut all = definitions().iter();
    let wanted = |full: &&String| full.rsplit('.').next() == Some(name);
    // Events are described as in the core group.
    let found = all.find(|(full, _)| wanted(full)).map(|(_, schema)| schema);
    let description = found.and_then(|schema| schema["properties"][field]["description"].as_str());
    description.unwrap_or_default().to_owned()
}

fn definition(column: &Column) -> Value {
    let description = match column.description.as_str() {
        "" if !column.path.is_empty() => {
            format!("Custom resource definition column (in JSONPath format): {}", column.path)
        }
        text => text.to_owned(),
    };
    json!({
        "name": column.name, "type": column.r#type, "format": column.format,
        "description": description, "priority": column.priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    #[test]
    fn a_routes_row_has_the_columns_of_its_crd_and_picks_the_condition_that_holds() {
        let object = json!({
            "metadata": { "name": "shop", "creationTimestamp": "2027-01-15T07:00:00Z" },
            "spec": { "host": "shop.example.com", "to": { "name": "web" } },
            "status": { "certificate": [
                { "type": "Default", "status": "False" }, { "type": "Managed", "status": "True" },
            ] },
        });
        let table = Table { kind: testing::route(), now: noon(), include: Include::Nothing };
        let table = table.of_object(&object);
        let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 9);
        let cells = &table["rows"][0]["cells"];
        assert_eq!((&cells[1], &cells[5]), (&json!("shop.example.com"), &json!("Managed")));
        assert_eq!((&cells[7], &cells[8]), (&Value::Null, &json!("60m")));
    }

    #[test]
    fn ages_get_coarser_as_they_grow() {
        let age = |seconds| cells::age(noon() - chrono::TimeDelta::seconds(seconds), noon());
        let day = 86_400;
        let ages = [0, 119, 120, 125, 3600, 3 * 3600 + 60, 9 * 3600, 3 * day, 9 * day, 900 * day];
        let expected = ["0s", "119s", "2m", "2m5s", "60m", "3h1m", "9h", "3d", "9d", "2y170d"];
        assert_eq!(ages.map(age), expected);
    }
}
