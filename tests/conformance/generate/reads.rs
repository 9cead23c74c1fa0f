//! Gets, lists and watches.

use super::{Generator, Kind};
use crate::call::Call;

const LABELS: &[&str] = &[
    "app=web",
    "app==db",
    "app!=web",
    "app in (web,db)",
    "app notin (web)",
    "app",
    "!app",
    "tier=front,app=web",
    "app=web,",
    "size>2",
    "size<2",
    "app=",
    "",
    "app in ()",
    "kubernetes.io/metadata.name=${a}",
];
const BAD_LABELS: &[&str] = &[
    "app in",
    "a b",
    "=x",
    "app=we b",
    "app in (web",
    "-app=x",
    "app=web,,tier",
    "app>x",
    "!app=web",
    "app===x",
];
const FIELDS: &[&str] = &[
    "metadata.name=a",
    "metadata.name!=a",
    "metadata.name==b",
    "metadata.namespace=${a}",
    "metadata.namespace=${b}",
    "metadata.name=a,metadata.namespace=${a}",
    "metadata.name=",
    "",
    "metadata.name=\\,",
];
const BAD_FIELDS: &[&str] = &[
    "metadata.name",
    "a=b=c",
    "metadata.labels.app=web",
    "spec.unknown=1",
    "=",
    "metadata.name=a,b",
    "metadata.uid=x",
    "\\=x",
];
const ACCEPT: &[&str] = &[
    "application/json",
    "*/*",
    "application/yaml;q=0.5, application/json",
    "text/html",
    "image/png",
    "application/json;stream=watch",
    "",
    TABLE,
    TABLE,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
];
/// The Accept header of `kubectl get`.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

impl Generator {
    pub fn get(&mut self, kind: &Kind) -> Call {
        let path = self.object_path(kind);
        match self.rng.u32(0..10) {
            0 => Call::get(format!("{path}/status")),
            1 => {
                let accept = self.pick(ACCEPT);
                Call::get(path).header("accept", accept)
            }
            2 => {
                let version = self.pick(&["0", "", "abc", "1"]);
                Call::get(path).with("resourceVersion", version)
            }
            3 => Call::get(path).with("pretty", "true").with("nonsense", "1"),
            _ => Call::get(path),
        }
    }

    pub fn list(&mut self, kind: &Kind) -> Call {
        let path = match self.chance(85) {
            true => self.collection(kind),
            // Without a limit: objects of the real cluster itself are not compared.
            false => {
                let call = Call::get(kind.everywhere());
                return self.sometimes(60, call, Self::selected);
            }
        };
        let call = self.sometimes(40, Call::get(path.clone()), Self::selected);
        // The real cluster has namespaces of its own.
        if !kind.namespaced {
            return call;
        }
        match self.rng.u32(0..20) {
            0..8 => call,
            8..11 => call.with("limit", self.pick(&["1", "2", "1", "500"])),
            11..14 => call.with("limit", "1").with("continue", format!("${{continue {path}}}")),
            14..18 => self.of_a_version(&path, call),
            18 => self.misshapen_list(call),
            19 if self.chance(50) => {
                let objects = self.pick(&["None", "Metadata", "Object", "Some"]);
                call.header("accept", TABLE).with("includeObject", objects)
            }
            _ => call.header("accept", self.pick(ACCEPT)),
        }
    }

    fn selected(&mut self, call: Call) -> Call {
        let collection = call.path.clone();
        let fields = super::KINDS.iter().find(|kind| collection.ends_with(kind.plural));
        match self.rng.u32(0..12) {
            0..5 => call.with("labelSelector", self.pick(LABELS)),
            5 => call.with("labelSelector", self.pick(BAD_LABELS)),
            6..8 => call.with("fieldSelector", self.pick(FIELDS)),
            8 => call.with("fieldSelector", self.pick(BAD_FIELDS)),
            9..11 => call.with(
                "fieldSelector",
                self.pick(fields.map_or(FIELDS, |kind| kind.field_selectors)),
            ),
            _ => {
                let labels = self.pick(LABELS);
                call.with("labelSelector", labels).with("fieldSelector", self.pick(FIELDS))
            }
        }
    }

    fn of_a_version(&mut self, path: &str, call: Call) -> Call {
        let last = format!("${{list {path}}}");
        match self.rng.u32(0..9) {
            0 => call.with("resourceVersion", "0"),
            1 => call.with("resourceVersion", last),
            2 => call.with("resourceVersion", last).with("resourceVersionMatch", "Exact"),
            3 => call.with("resourceVersion", last).with("resourceVersionMatch", "NotOlderThan"),
            4 => call.with("resourceVersion", "0").with("resourceVersionMatch", "Exact"),
            5 => call
                .with("resourceVersion", "0")
                .with("resourceVersionMatch", "NotOlderThan")
                .with("limit", "1"),
            6 => call.with("resourceVersionMatch", "Exact"),
            7 => call.with("resourceVersion", last).with("resourceVersionMatch", "Newest"),
            _ => call.with("resourceVersion", last).with("limit", "1"),
        }
    }

    fn misshapen_list(&mut self, call: Call) -> Call {
        match self.rng.u32(0..8) {
            0 => call.with("resourceVersion", "abc"),
            1 => call.with("limit", "many"),
            2 => call.with("limit", "-1"),
            3 => call.with("continue", "nonsense"),
            4 => call
                .with("continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0")
                .with("resourceVersion", "1"),
            5 => call.with("timeoutSeconds", "soon"),
            6 => call.with("watch", "perhaps"),
            _ => call.with("sendInitialEvents", "true"),
        }
    }

    pub fn watch(&mut self, kind: &Kind) -> Call {
        let path = match self.rng.u32(0..10) {
            0..7 => self.collection(kind),
            7 => self.object_path(kind),
            _ => kind.everywhere(),
        };
        let call = Call::watch(path.clone());
        let call = if kind.everywhere() != path || kind.namespaced {
            self.sometimes(45, call, Self::selected)
        } else {
            call
        };
        let object = format!("{path}/{}", self.name(kind));
        // The columns come with the first event, which may belong to another sequence in a watch of
        // all namespaces.
        let call = match self.chance(10) && path != kind.everywhere() {
            true => call.header("accept", TABLE),
            false => call,
        };
        match self.rng.u32(0..12) {
            0 => call,
            1 => call.with("resourceVersion", "0"),
            2..5 => call.with("resourceVersion", format!("${{list {path}}}")),
            5..7 => call.with("resourceVersion", format!("${{rv {object}}}")),
            7..9 => call
                .with("resourceVersion", format!("${{stale {object}}}"))
                .with("allowWatchBookmarks", "true"),
            9 => call
                .with("sendInitialEvents", "true")
                .with("resourceVersionMatch", "NotOlderThan")
                .with("allowWatchBookmarks", "true"),
            10 => call
                .with("sendInitialEvents", "true")
                .with("resourceVersionMatch", "NotOlderThan")
                .with("resourceVersion", "0")
                .with("allowWatchBookmarks", "true"),
            _ => self.misshapen_watch(call),
        }
    }

    fn misshapen_watch(&mut self, call: Call) -> Call {
        match self.rng.u32(0..6) {
            0 => call.with("resourceVersion", "abc"),
            1 => call.with("sendInitialEvents", "true"),
            2 => call.with("resourceVersionMatch", "Exact").with("resourceVersion", "1"),
            3 => {
                call.with("sendInitialEvents", "false").with("resourceVersionMatch", "NotOlderThan")
            }
            4 => call.with("limit", "1").with("resourceVersion", "0"),
            _ => call.with("fieldSelector", "spec.unknown=1"),
        }
    }
}
