use http::Method;
use serde_json::json;

use super::discovered::from_legacy;
use super::routes::{RequestInfo, request_info};
use crate::request::Query;

fn info(method: &str, path: &str, query: &str) -> RequestInfo {
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    request_info(&method.parse::<Method>().unwrap(), &words, &Query::parse(Some(query)))
}

fn told(method: &str, path: &str, query: &str) -> String {
    let RequestInfo { verb, namespace, resource, name, subresource, is_long } = info(method, path, query);
    format!("{verb} {namespace}/{resource}/{name}/{subresource} {is_long}")
}

#[test]
fn the_form_of_a_path_tells_what_it_is_about() {
    assert_eq!(told("GET", "", ""), " /// false");
    assert_eq!(told("GET", "pods", ""), "list /pods// false");
    assert_eq!(told("GET", "pods", "watch=1"), "watch /pods// true");
    assert_eq!(told("GET", "watch/namespaces/n/pods", ""), "watch n/pods// true");
    assert_eq!(told("GET", "namespaces/n/pods/p", "watch=true"), "get n/pods/p/ false");
    assert_eq!(told("POST", "namespaces/n/pods/p/exec", ""), "create n/pods/p/exec true");
    assert_eq!(told("PUT", "namespaces/n/pods/p/status", ""), "update n/pods/p/status false");
    assert_eq!(told("DELETE", "namespaces/n/pods", ""), "deletecollection n/pods// false");
    assert_eq!(told("DELETE", "nodes/a", ""), "delete /nodes/a/ false");
    assert_eq!(told("GET", "namespaces/n", ""), "get /namespaces/n/ false");
    assert_eq!(told("GET", "namespaces/n/status", ""), "get /namespaces/n/status false");
    assert_eq!(told("TRACE", "nodes/a", ""), " /nodes/a/ false");
}

#[test]
fn lists_of_resources_are_read_whatever_they_hold() {
    assert!(from_legacy("g", "v1", &json!({"kind": "Status"})).is_err());
    assert!(from_legacy("g", "v1", &json!([1])).is_err());
    let odd = json!({"kind": "APIResourceList", "resources": [
        7, {"name": "a/b"}, {"name": "a", "verbs": "x"}, {"name": "a/b", "verbs": ["get"], "group": "o", "version": "v2"},
    ]});
    let found = from_legacy("g", "v1", &odd).unwrap();
    assert_eq!(found[1]["resource"], "a");
    assert_eq!(
        found[1]["subresources"][0]["responseKind"],
        json!({"group": "o", "version": "v2", "kind": ""})
    );
}
