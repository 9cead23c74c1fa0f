//! Kinds from CustomResourceDefinitions.

use serde_json::Value;

use super::{Kind, library};
use crate::{
    name_rules::Syntax,
    schema::{Schema, SchemaError},
};

/// The parts of a CRD that built-in kinds lack.
#[derive(Debug)]
pub struct Crd {
    /// The whole definition, as an object.
    pub object: Value,
    /// The schema as written, for OpenAPI documents.
    pub source: Value,
    /// Columns of tables.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `date` and the like.
    pub r#type: String,
    /// `name` for names.
    pub format: String,
    pub description: String,
    /// Above 0 for columns of `-o wide`.
    pub priority: i32,
    /// JSONPath of the value.
    pub path: String,
}

/// A CRD that is no YAML, or whose schema is not supported.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::Error),
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

pub(super) fn read(source: &str) -> Result<Kind, CrdError> {
    let object: Value = serde_saphyr::from_str(source)?;
    let spec = &object["spec"];
    let version = &spec["versions"][0];
    let names = &spec["names"];
    let text =
        |value: &Value| -> &'static str { value.as_str().unwrap_or_default().to_owned().leak() };
    let texts = |value: &Value| -> &'static [&'static str] {
        let texts: Vec<&str> = value.as_array().into_iter().flatten().map(text).collect();
        texts.leak()
    };
    let schema = version["schema"]["openAPIV3Schema"].clone();
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    let fields = fields.filter_map(|field| field["jsonPath"].as_str());
    let group = text(&spec["group"]);
    let kind = text(&names["kind"]);
    let reversed: Vec<&str> = group.rsplit('.').collect();
    Ok(Kind {
        group,
        version: text(&version["name"]),
        kind,
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        status: version["subresources"].get("status").is_some(),
        generation: true,
        unconditional_update: false,
        create_on_update: false,
        returns_deleted: false,
        names: Syntax::Subdomain,
        fields: fields.map(|path| path.trim_start_matches('.').to_owned()).collect(),
        schema: Schema::structural(&schema)?,
        definition: format!("{}.{}.{kind}", reversed.join("."), text(&version["name"])),
        crd: Some(Crd {
            columns: columns(&version["additionalPrinterColumns"]),
            source: schema,
            object,
        }),
        slot: 0,
    })
}

fn columns(source: &Value) -> Vec<Column> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let column = |column: &Value| Column {
        name: text(&column["name"]),
        r#type: text(&column["type"]),
        format: text(&column["format"]),
        description: text(&column["description"]),
        priority: column["priority"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
        path: text(&column["jsonPath"]),
    };
    let own: Vec<_> = source.as_array().into_iter().flatten().map(column).collect();
    if own.is_empty() { vec![age()] } else { own }
}

/// The default column.
fn age() -> Column {
    const FIELD: &str = "creationTimestamp";
    Column {
        name: "Age".to_owned(),
        r#type: "date".to_owned(),
        description: library::metadata_description(FIELD),
        path: format!(".metadata.{FIELD}"),
        ..Column::default()
    }
}
