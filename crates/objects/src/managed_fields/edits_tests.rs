//! Edits lead to what an apply leads to.

use proptest::prelude::*;
use serde_json::json;

use super::tests::{Cluster, config, types};
use super::*;
use crate::outline::Outline;
use crate::schema::{Field, Type};

/// An object as it is stored: with its entries, the metadata first and in it the revision.
fn stored(cluster: &Cluster) -> String {
    let mut object = cluster.object.clone();
    object["metadata"]["managedFields"] = cluster.managed.clone();
    let metadata = object["metadata"].take().to_string();
    object.as_object_mut().unwrap().remove("metadata");
    format!("{{\"metadata\":{{\"resourceVersion\":\"5\",{},{}", &metadata[1..], &object.to_string()[1..])
}

/// The object and its entries after an apply by edits, if these are found.
fn edited(
    cluster: &Cluster,
    manager: &str,
    config: &str,
    is_free: &dyn Fn(&Type, &Field, Edit<'_>) -> bool,
) -> Option<(Value, Value)> {
    let text = stored(cluster);
    let types = types();
    let (object, config) = (Outline::read(&text)?, Outline::read(config)?);
    let mut next = cluster.clone();
    next.seconds += 1;
    let knowledge = Knowledge { is_free, is_default: &|_, _, _| false };
    let (head, tail) =
        next.writer(&types, manager, |writer| edits(writer, &object, &config, false, knowledge))?.apply()?;
    let text = [&head[..], b"6", &tail].concat();
    let mut value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value.pointer("/metadata/resourceVersion"), Some(&json!("6")));
    let metadata = value["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    let managed = metadata.remove("managedFields").unwrap();
    Some((value, managed))
}

/// Changes one thing in a configuration.
fn changed(mut config: Value, what: u8) -> Value {
    let containers = config.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    match (what, containers) {
        (0, Some(containers)) => containers[0]["image"] = "w".into(),
        (1, Some(containers)) if containers.len() > 1 => {
            containers.remove(0);
        }
        (2, Some(containers)) => {
            if let Some(ports) = containers[0].get_mut("ports").and_then(Value::as_array_mut) {
                ports.pop();
            }
        }
        _ => {}
    }
    if let (3, Some(replicas)) = (what, config.pointer_mut("/spec/replicas")) {
        *replicas = 7.into();
    }
    match (what, config.get_mut("data").and_then(Value::as_object_mut)) {
        (4, Some(data)) => data.values_mut().for_each(|value| *value = "w".into()),
        (5, Some(data)) => {
            let first = data.keys().next().cloned().unwrap_or_default();
            data.remove(&first);
        }
        _ => {}
    }
    config
}

proptest! {
    #[test]
    fn edits_lead_to_what_an_apply_leads_to(
        base in config(), last in config(), what in prop::collection::vec(0..8_u8, 0..3), updates in any::<bool>(),
        other in prop::option::of(config()), pretty in any::<bool>(),
    ) {
        let mut c = Cluster::new();
        if updates {
            c.update("b", base);
        } else {
            c.apply("b", base, true).unwrap();
        }
        c.apply("a", last.clone(), true).unwrap();
        if let Some(other) = other {
            c.update("c", other);
        }
        let next = what.into_iter().fold(last, changed);
        let text = if pretty { serde_json::to_string_pretty(&next).unwrap() } else { next.to_string() };
        if let Some(by_edits) = edited(&c, "a", &text, &|_, _, _| true) {
            prop_assert_eq!(c.apply("a", next, false), Ok(()));
            prop_assert_eq!(by_edits, (c.object, c.managed));
        }
    }
}

fn full() -> Value {
    let containers = json!([
        {"name": "x", "image": "i:1", "ports": [{"containerPort": 80}, {"containerPort": 81}]},
        {"name": "y", "image": "i:1"},
    ]);
    json!({
        "apiVersion": "v1", "kind": "Kind", "metadata": {"name": "n", "labels": {"l": "1"}},
        "data": {"a": "1", "b": "2", "c": "3"},
        "spec": {"replicas": 2, "containers": containers, "args": ["p"], "tolerations": ["t"]},
    })
}

#[test]
fn values_may_change_and_items_may_go() {
    let mut c = Cluster::new();
    c.apply(
        "other",
        json!({"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "n"}, "data": {"z": "1"}}),
        false,
    )
    .unwrap();
    c.apply("me", full(), false).unwrap();
    let mut next = full();
    next["spec"]["containers"][0]["image"] = "i:2".into();
    next["spec"]["containers"][0]["ports"] = json!([{"containerPort": 81, "protocol": "TCP"}]);
    assert_eq!(edited(&c, "me", &next.to_string(), &|_, _, _| true), None, "the protocol is new");
    next["spec"]["containers"][0]["ports"] = json!([{"containerPort": 81}]);
    next["spec"]["containers"].as_array_mut().unwrap().pop();
    next["spec"]["replicas"] = 3.into();
    next["spec"]["tolerations"] = json!(["t", "u"]);
    next["data"] = json!({"c": "4"});
    let by_edits = edited(&c, "me", &serde_json::to_string_pretty(&next).unwrap(), &|_, _, _| true);
    assert!(by_edits.is_some());
    c.apply("me", next, false).unwrap();
    assert_eq!(by_edits, Some((c.object.clone(), c.managed)));
    assert_eq!(c.object["data"], json!({"c": "4", "z": "1"}));
}

#[test]
fn what_is_not_simple_is_left_to_apply() {
    let mut c = Cluster::new();
    c.apply("me", full(), false).unwrap();
    let text = |change: &dyn Fn(&mut Value)| {
        let mut next = full();
        change(&mut next);
        next.to_string()
    };
    let cases = [
        ("a new entry", text(&|o| o["data"]["d"] = "1".into())),
        ("an entry that is given up for good", text(&|o| o["data"] = json!({}))),
        ("another order", text(&|o| o["spec"]["containers"].as_array_mut().unwrap().reverse())),
        ("an empty text", text(&|o| o["data"]["a"] = "".into())),
        ("escapes", text(&|o| o["data"]["a"] = "\"".into())),
        ("null", text(&|o| o["data"]["a"] = Value::Null)),
        ("another form", text(&|o| o["data"]["a"] = 1.into())),
        ("a field that is gone", text(&|o| drop(o["spec"].as_object_mut().unwrap().remove("replicas")))),
        ("a field of no type", text(&|o| o["spec"]["x"] = 1.into())),
        ("the status", text(&|o| o["status"] = json!({"phase": "x"}))),
        ("another name", text(&|o| o["metadata"]["name"] = "m".into())),
        ("no name", text(&|o| drop(o["metadata"].as_object_mut().unwrap().remove("name")))),
        ("another kind", text(&|o| o["kind"] = "K".into())),
        ("a version", text(&|o| o["metadata"]["resourceVersion"] = "5".into())),
        ("entries", text(&|o| o["metadata"]["managedFields"] = json!([]))),
        ("a name twice", full().to_string().replacen("\"a\":\"1\"", "\"a\":\"1\",\"a\":\"2\"", 1)),
        ("a name instead of another", full().to_string().replacen("\"b\":\"2\"", "\"a\":\"2\"", 1)),
        ("an item twice", text(&|o| o["spec"]["containers"][1]["name"] = "x".into())),
        ("another member of a set", text(&|o| o["spec"]["args"] = json!(["q"]))),
        (
            "another spelling of a number",
            full().to_string().replacen("\"replicas\":2", "\"replicas\":3.0", 1),
        ),
    ];
    for (what, config) in cases {
        assert_eq!(edited(&c, "me", &config, &|_, _, _| true), None, "{what}: {config}");
    }
    assert!(edited(&c, "me", &full().to_string(), &|_, _, _| false).is_some(), "nothing changes");
    let next = text(&|o| o["data"]["a"] = "9".into());
    assert_eq!(edited(&c, "me", &next, &|_, field, _| &*field.name != "data"), None, "a field with rules");
    assert_eq!(edited(&c, "you", &next, &|_, _, _| true), None, "whoever has not applied yet");
    c.update("other", {
        let mut object = c.object.clone();
        object["data"]["a"] = "0".into();
        object
    });
    assert_eq!(edited(&c, "me", &next, &|_, _, _| true), None, "somebody else's value");
}
