//! How the API server classifies a request (API priority and fairness).

use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Names of the FlowSchema and the priority level of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classed {
    pub schema: String,
    pub level: String,
}

impl Classed {
    pub fn new(schema: &str, level: &str) -> Self {
        Self { schema: schema.to_owned(), level: level.to_owned() }
    }
}

/// Sends a GET with this access, and looks up the names in the answer's headers as administrator.
pub async fn classed(admin: &Client, somebody: &Client, path: &str) -> Result<Classed, String> {
    let request = http::Request::get(path).body(Body::empty()).map_err(|why| why.to_string())?;
    let answer = somebody.send(request).await.map_err(|why| why.to_string())?;
    let header = |name: &str| -> Result<String, String> {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or(format!("no {name} with {}", answer.status()))
    };
    let schema = header("x-kubernetes-pf-flowschema-uid")?;
    let level = header("x-kubernetes-pf-prioritylevel-uid")?;
    Ok(Classed {
        schema: name_of(admin, "flowschemas", &schema).await?,
        level: name_of(admin, "prioritylevelconfigurations", &level).await?,
    })
}

async fn name_of(admin: &Client, plural: &str, uid: &str) -> Result<String, String> {
    let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}");
    let request = http::Request::get(path).body(Vec::new()).map_err(|why| why.to_string())?;
    let all: Value = admin.request(request).await.map_err(|why| why.to_string())?;
    let mut each = all["items"].as_array().into_iter().flatten();
    let found = each.find(|object| object["metadata"]["uid"] == uid);
    let name = found.and_then(|object| object["metadata"]["name"].as_str());
    name.map(str::to_owned).ok_or(format!("none of the {plural} is {uid}"))
}
