//! Random writes to a few ConfigMaps in three namespaces, and random views of them.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};
use shoal_testkit::Http;

/// Namespaces that every cluster has.
pub const NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// One write. A put creates or changes; often it changes nothing, and often a delete finds nothing.
#[derive(Clone, Debug)]
pub enum Write {
    Put { namespace: usize, name: u8, label: Option<u8>, data: u8 },
    Delete { namespace: usize, name: u8 },
}

/// What a list or watch is asked for.
#[derive(Clone, Debug)]
pub struct View {
    namespace: Option<usize>,
    selector: &'static str,
}

const SELECTORS: [&str; 9] = [
    "",
    "labelSelector=l%3D0",
    "labelSelector=l%21%3D0",
    "labelSelector=l%20in%20(0,1)",
    "labelSelector=%21l",
    "fieldSelector=metadata.name%3Dm1",
    "fieldSelector=metadata.name%21%3Dm1",
    "fieldSelector=metadata.namespace%3Dkube-public",
    "labelSelector=l&fieldSelector=metadata.namespace%21%3Ddefault",
];

pub fn writes(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Write>> {
    let put = (0..NAMESPACES.len(), 0..10u8, prop::option::weighted(0.8, 0..3u8), 0..3u8)
        .prop_map(|(namespace, name, label, data)| Write::Put { namespace, name, label, data });
    let delete =
        (0..NAMESPACES.len(), 0..10u8).prop_map(|(namespace, name)| Write::Delete { namespace, name });
    prop::collection::vec(prop_oneof![3 => put, 1 => delete], count)
}

pub fn views() -> impl Strategy<Value = View> {
    (prop::option::of(0..NAMESPACES.len()), prop::sample::select(&SELECTORS[..]))
        .prop_map(|(namespace, selector)| View { namespace, selector })
}

impl View {
    /// The path with its selector and further parameters.
    pub fn path(&self, parameters: &str) -> String {
        let collection = match self.namespace {
            Some(at) => collection(at),
            None => "/api/v1/configmaps".to_owned(),
        };
        format!("{collection}?{}&{parameters}", self.selector)
    }

    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty()
    }
}

fn collection(namespace: usize) -> String {
    format!("/api/v1/namespaces/{}/configmaps", NAMESPACES[namespace])
}

pub async fn apply(http: &Http, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put { namespace, name, label, data } => put(http, *namespace, *name, *label, *data).await,
            Write::Delete { namespace, name } => {
                let answer = http.delete(&format!("{}/m{name}", collection(*namespace))).await;
                assert!([200, 404].contains(&answer.status.as_u16()), "{answer:?}");
            }
        }
    }
}

async fn put(http: &Http, namespace: usize, name: u8, label: Option<u8>, data: u8) {
    let label = label.map_or(Value::Null, |label| label.to_string().into());
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("m{name}"), "labels": {"l": label}}, "data": {"d": data.to_string()},
    });
    let patched = http.merge(&format!("{}/m{name}", collection(namespace)), &object).await;
    if patched.status == 404 {
        if object["metadata"]["labels"]["l"].is_null() {
            object["metadata"]["labels"] = json!({});
        }
        let created = http.post(&collection(namespace), &object).await;
        assert_eq!(created.status, 201, "{created:?}");
    } else {
        assert_eq!(patched.status, 200, "{patched:?}");
    }
}

/// Runs one case on a runtime whose time is simulated: a watch with a timeout ends when nothing is left to tell.
pub fn in_simulated_time(case: impl Future<Output = TestCaseResult>) -> TestCaseResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.map_err(|error| TestCaseError::fail(error.to_string()))?.block_on(case)
}
