//! Calls to missing resources, or with unsupported verbs.

use http::Method;
use serde_json::json;

use super::{Generator, Kind};
use crate::call::Call;

impl Generator {
    pub fn unsupported(&mut self, kind: &Kind) -> Call {
        let (path, collection) = (self.object_path(kind), self.collection(kind));
        let object = self.object(kind);
        match self.rng.u32(0..18) {
            0 => Call::post(path, object),
            1 => Call::put(collection, object),
            2 => Call::merge(collection, json!({})),
            3 => Call::get(format!("{path}/nonsense")),
            4 => Call::get(format!("{path}/scale")),
            5 => Call::post(format!("{path}/status"), object),
            6 => Call::delete(format!("{path}/status")),
            7 => Call::get("/api/v1/nonsense"),
            8 => Call::get("/apis/nonsense.example.com/v1/things"),
            9 => Call::get("/apis/route.openshift.io/v2/routes"),
            10 => Call::get("/apis/route.openshift.io/v1/namespaces/${a}/nonsense"),
            11 => Call::get("/nonsense"),
            12 => Call::new(Method::from_bytes(b"PROPFIND").expect("a method"), path),
            13 => Call::get(kind.collection("no-such-namespace")),
            14 => Call::get(format!("{}/a", kind.collection("no-such-namespace"))),
            15 => Call::delete(format!("{}/a", kind.collection("no-such-namespace"))),
            16 => Call::delete(kind.everywhere()).with("labelSelector", "no=such"),
            _ => Call::get(format!("{collection}/")),
        }
    }
}
