//! Whatever a client sends, the answer is a Status with the right code: no panic, no hang, nothing stored.

use serde_json::{Value, json};
use shoal_testkit::{Cluster, Http};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// The request is refused with this code, by a Status, and leaves nothing behind.
async fn refused(
    http: &Http,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<bytes::Bytes>,
    code: u16,
) {
    let before = http.get(MAPS).await.json()["metadata"]["resourceVersion"].clone();
    let answer = http.send(method, path, headers, body).await;
    assert_eq!(answer.status, code, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
    let status = answer.json();
    assert_eq!(
        (status["kind"].as_str(), status["status"].as_str()),
        (Some("Status"), Some("Failure")),
        "{path}"
    );
    assert_eq!(status["code"], code);
    assert_eq!(
        http.get(MAPS).await.json()["metadata"]["resourceVersion"],
        before,
        "{method} {path} wrote something"
    );
}

#[tokio::test]
async fn broken_json_and_yaml_are_refused() {
    let http = Cluster::start().await.http();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{deep}}}");
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        b"{\"kind\":\"ConfigMap\"".to_vec(),
        b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"} trailing".to_vec(),
        b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":\"\xff\xfe\"}}".to_vec(),
        b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":1e400}}".to_vec(),
        deep.clone().into_bytes(),
        nested.into_bytes(),
        vec![0; 1000],
    ];
    for body in bodies {
        refused(&http, "POST", MAPS, &[JSON], body, 400).await;
    }
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
         d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
         g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nkind: ConfigMap\napiVersion: v1\n";
    for yaml in ["a: [", "{{{", bomb, "a: 1\n---\nb: 2\n", "\u{0}"] {
        refused(&http, "POST", MAPS, &[("content-type", "application/yaml")], yaml.to_owned(), 400).await;
    }
}

#[tokio::test]
async fn bodies_above_three_mebibytes_are_refused_and_just_below_are_read() {
    let http = Cluster::start().await.http();
    let limit = 3 * 1024 * 1024;
    refused(&http, "POST", MAPS, &[JSON], vec![b' '; limit + 1], 413).await;
    // Read completely, and then found to be no object.
    refused(&http, "POST", MAPS, &[JSON], vec![b' '; limit], 400).await;
}

#[tokio::test]
async fn wrong_kinds_groups_names_and_namespaces_are_refused() {
    let http = Cluster::start().await.http();
    let wrong = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        json!({"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        json!({"apiVersion": 1, "kind": "ConfigMap"}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 7}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": ["x"]}),
    ];
    for body in wrong {
        refused(&http, "POST", MAPS, &[JSON], body.to_string(), 400).await;
    }
    refused(&http, "POST", MAPS, &[("content-type", "text/plain")], map("a").to_string(), 415).await;
    refused(&http, "POST", MAPS, &[JSON, ("accept", "text/csv")], map("a").to_string(), 406).await;
    refused(&http, "GET", "/api/v1/nothings", &[], "", 404).await;
    refused(&http, "GET", "/apis/apps/v7/deployments", &[], "", 404).await;
    refused(&http, "PUT", MAPS, &[JSON], map("a").to_string(), 405).await;
    refused(&http, "DELETE", "/api/v1/namespaces", &[], "", 405).await;
}

#[tokio::test]
async fn path_tricks_name_nothing() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    let tricks = [
        "/api/v1/namespaces/default/configmaps/../configmaps/a",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/a",
        "/api/v1/namespaces/default%2fconfigmaps/a",
        "/api/v1/namespaces/default/configmaps/a%2f..%2fb",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1//namespaces/default/configmaps/a",
        "//api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces//configmaps/a",
    ];
    for path in tricks {
        let answer = http.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[tokio::test]
async fn hostile_selectors_are_refused_quickly() {
    let http = Cluster::start().await.http();
    let long = "a,".repeat(20_000);
    let parens = "a%20in%20(".repeat(5_000);
    let labels = ["%3D", "a%3D%3D%3Db", "a%20in", "(((((", "a%3D%00", "!!a", "a%20notin%20b", &parens];
    for selector in labels {
        refused(&http, "GET", &format!("{MAPS}?labelSelector={selector}"), &[], "", 400).await;
    }
    assert_eq!(http.get(&format!("{MAPS}?labelSelector={long}")).await.status, 400);
    for selector in ["a", "%3D", "spec.x%3D1", "metadata.name%3Da%5C", "metadata.name%20in%20(a)"] {
        refused(&http, "GET", &format!("{MAPS}?fieldSelector={selector}"), &[], "", 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn odd_resource_versions_get_the_codes_of_the_real_server() {
    let http = Cluster::start().await.http();
    for version in ["abc", "-1", "1.5", "%20", "18446744073709551616", "0x10"] {
        refused(&http, "GET", &format!("{MAPS}?resourceVersion={version}"), &[], "", 400).await;
        refused(&http, "GET", &format!("{MAPS}?watch=1&resourceVersion={version}"), &[], "", 500).await;
    }
    refused(&http, "GET", &format!("{MAPS}?resourceVersion=999999999999"), &[], "", 504).await;
    for token in ["nonsense", "e30", "%00", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", &"A".repeat(100_000)] {
        refused(&http, "GET", &format!("{MAPS}?limit=1&continue={token}"), &[], "", 400).await;
    }
}

#[tokio::test]
async fn json_patches_beyond_ten_thousand_operations_are_refused() {
    let http = Cluster::start().await.http();
    http.post(MAPS, &map("a")).await;
    let patch = |n: usize| {
        let operations: Vec<Value> = (0..n)
            .map(|i| json!({"op": "add", "path": "/metadata/annotations", "value": {"i": i.to_string()}}))
            .collect();
        Value::from(operations).to_string()
    };
    let kind = [("content-type", "application/json-patch+json")];
    let path = format!("{MAPS}/a");
    let fits = http.send("PATCH", &path, &kind, patch(10_000)).await;
    assert_eq!(fits.status, 200);
    refused(&http, "PATCH", &path, &kind, patch(10_001), 413).await;
}

#[tokio::test]
async fn broken_protobuf_is_refused() {
    let http = Cluster::start().await.http();
    let kind = [("content-type", "application/vnd.kubernetes.protobuf")];
    let envelope = |body: &[u8]| [b"k8s\0", body].concat();
    let bodies = [
        b"".to_vec(),
        b"k8s\0".to_vec(),
        b"not protobuf at all".to_vec(),
        envelope(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), // a length beyond the end
        envelope(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), // an overlong varint
        envelope(&[0x0b]),                                                                   // a group
        envelope(&[0x0a, 0x04, 0x0a, 0x02, b'v', b'1', 0x12, 0x02, 0x0a, 0x7f]),
    ];
    for body in bodies {
        refused(&http, "POST", MAPS, &kind, body, 400).await;
    }
}

#[tokio::test]
async fn exactly_one_of_many_writers_wins_each_round() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    http.post(MAPS, &map("a")).await;
    for round in 0..20 {
        let current = http.get(&format!("{MAPS}/a")).await.json();
        let writers = (0..8).map(|writer| {
            let (http, mut next) = (http.clone(), current.clone());
            next["data"] = json!({"winner": format!("{round}-{writer}")});
            tokio::spawn(async move { http.put(&format!("{MAPS}/a"), &next).await.status.as_u16() })
        });
        let mut codes = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            codes.push(writer.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409, 409, 409, 409, 409], "round {round}");
    }
}
