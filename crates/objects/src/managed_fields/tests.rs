use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{Empty, Field, ListType, Shape, Type, TypeId, Types};

/// A small kind with everything apply tells apart.
pub(super) fn types() -> Types {
    let ty = |name: &str, mut fields: Vec<Field>| {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Type { name: name.into(), fields, atomic: false, preserves_unknown: false }
    };
    let plain = |name: &str| Field::new(name, Shape::String);
    let object =
        |name: &str, id: u32| Field { empty: Empty::Zero, ..Field::new(name, Shape::Object(TypeId(id))) };
    let list = |name: &str, item: Shape, list: ListType| Field {
        list,
        ..Field::new(name, Shape::List(Box::new(item)))
    };
    let text_map = |name: &str| Field::new(name, Shape::Map(Box::new(Shape::String)));
    let keyed = |keys: &[&str]| ListType::Map(keys.iter().map(|k| (*k).into()).collect());
    let mut protocol = plain("protocol");
    protocol.default = Some(Box::new("TCP".into()));
    let containers = list("containers", Shape::Object(TypeId(3)), keyed(&["name"]));
    Types::new(vec![
        ty(
            "test.Kind",
            vec![
                plain("apiVersion"),
                plain("kind"),
                object("metadata", 1),
                object("spec", 2),
                object("status", 5),
                text_map("data"),
            ],
        ),
        ty(
            "test.Meta",
            vec![
                plain("name"),
                plain("uid"),
                text_map("labels"),
                text_map("annotations"),
                list("finalizers", Shape::String, ListType::Set),
            ],
        ),
        ty(
            "test.Spec",
            vec![
                Field::new("replicas", Shape::Int32),
                Field { empty: Empty::Null, ..containers },
                Field { atomic: true, ..text_map("nodeSelector") },
                list("tolerations", Shape::String, ListType::Atomic),
                list("args", Shape::String, ListType::Set),
                Field::new("free", Shape::Any),
            ],
        ),
        ty(
            "test.Container",
            vec![
                plain("name"),
                plain("image"),
                list("ports", Shape::Object(TypeId(4)), keyed(&["containerPort", "protocol"])),
            ],
        ),
        ty("test.Port", vec![Field::new("containerPort", Shape::Int32), protocol]),
        ty("test.Status", vec![Field::new("replicas", Shape::Int32), plain("phase")]),
    ])
}

/// An object and its entries, as a server would keep them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cluster {
    pub(super) object: Value,
    pub(super) managed: Value,
    pub(super) seconds: i64,
}

impl Cluster {
    pub(super) fn new() -> Cluster {
        Cluster { object: json!({}), managed: Value::Null, seconds: 0 }
    }

    pub(super) fn writer<T>(&self, types: &Types, manager: &str, act: impl FnOnce(&Writer<'_>) -> T) -> T {
        let schema = Schema { types, root: Some(TypeId(0)) };
        let convert = |value: &Value, version: &str| {
            ["v0", "v1"].contains(&version).then(|| (value.clone(), Schema { types, root: Some(TypeId(0)) }))
        };
        act(&Writer {
            manager,
            api_version: "v1",
            subresource: "",
            reach: Reach::Body,
            now: Timestamp(self.seconds * 1_000_000),
            schema,
            convert: &convert,
        })
    }

    pub(super) fn apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), Vec<Conflict>> {
        self.seconds += 1;
        let types = types();
        let applied = self.writer(&types, manager, |w| {
            let config = Config::new(w, &config).unwrap();
            let present = Entries::of(Some(&self.managed));
            if config.is_in_effect(w, &present, &self.object) {
                let again = apply(w, &present, &self.object, config, force);
                assert!(again.is_ok_and(|a| a.object.is_none() && a.entries == present.kept()));
                return Ok(Applied { object: None, entries: present.kept() });
            }
            apply(w, &present, &self.object, config, force)
        })?;
        if let Some(mut object) = applied.object {
            drop_nulls(&mut object);
            object["metadata"]["uid"] = "u".into();
            self.object = object;
        }
        self.managed = value_of(&applied.entries);
        Ok(())
    }

    pub(super) fn update(&mut self, manager: &str, mut object: Value) {
        self.seconds += 1;
        let types = types();
        let present = Entries::of(Some(&self.managed));
        let account = self.writer(&types, manager, |w| update(w, &present, None, &self.object, &object));
        object["metadata"]["uid"] = "u".into();
        self.object = object;
        self.managed = value_of(&account);
    }

    fn fields(&self, manager: &str) -> Value {
        let list = self.managed.as_array().cloned().unwrap_or_default();
        list.iter().find(|e| e["manager"] == manager).map_or(Value::Null, |e| e["fieldsV1"].clone())
    }
}

/// Entries as JSON, null for none.
fn value_of(account: &Account) -> Value {
    if account.json.is_empty() { Value::Null } else { serde_json::from_str(&account.json).unwrap() }
}

fn fields_of(set: &FieldSet<'_>) -> Value {
    let mut text = String::new();
    text::write_fields(&mut text, false, set);
    serde_json::from_str(&text).unwrap()
}

/// What decoding into Go structs does with them.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(drop_nulls);
            members.retain(|_, v| !v.is_null());
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn with_spec(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "a"}, "spec": spec})
}

fn with_data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "a"}, "data": data})
}

fn conflicts(result: Result<(), Vec<Conflict>>) -> Vec<String> {
    match result {
        Err(all) => all.into_iter().map(|c| format!("{} {}", c.manager, c.field)).collect(),
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn an_applier_owns_leaves_items_and_entries_but_no_holders() {
    let mut c = Cluster::new();
    let spec = json!({
        "replicas": 1, "nodeSelector": {"x": "1"}, "tolerations": ["t"], "args": ["b", "a"], "free": {"x": {"y": 1}},
        "containers": [{"name": "one", "image": "i", "ports": [{"containerPort": 80}]}],
    });
    c.apply("a", with_spec(spec), false).unwrap();
    assert_eq!(
        c.fields("a"),
        json!({"f:spec": {
            "f:replicas": {}, "f:nodeSelector": {}, "f:tolerations": {}, "f:args": {"v:\"a\"": {}, "v:\"b\"": {}},
            "f:free": {"f:x": {".": {}, "f:y": {}}},
            "f:containers": {"k:{\"name\":\"one\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
        }})
    );
}

#[test]
fn an_updater_owns_holders_that_were_not_there() {
    let mut c = Cluster::new();
    let mut object = with_spec(json!({"containers": [{"name": "one", "image": "i"}], "args": ["x"]}));
    object["metadata"]["labels"] = json!({"l": "x"});
    object["status"] = json!({"replicas": 4});
    c.update("creator", object);
    assert_eq!(
        c.fields("creator"),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
            "f:spec": {
                "f:args": {".": {}, "v:\"x\"": {}},
                "f:containers": {"k:{\"name\":\"one\"}": {".": {}, "f:image": {}, "f:name": {}}},
            },
        })
    );
}

#[test]
fn conflicts_name_owner_and_field() {
    let mut c = Cluster::new();
    c.update("creator", with_data(json!({"k": "1", "p": "1"})));
    let result = c.apply("a", with_data(json!({"k": "2", "p": "1"})), false);
    assert_eq!(conflicts(result), ["\"creator\" using v1 .data.k"]);
    c.apply("a", with_data(json!({"k": "2", "p": "1"})), true).unwrap();
    assert_eq!(c.fields("creator"), json!({"f:data": {".": {}, "f:p": {}}}));
    assert_eq!(c.fields("a"), json!({"f:data": {"f:k": {}, "f:p": {}}}));
    c.update("creator", with_data(json!({"k": "3", "p": "1"})));
    assert_eq!(c.fields("a"), json!({"f:data": {"f:p": {}}}));
}

#[test]
fn a_field_goes_with_its_last_owner() {
    let mut c = Cluster::new();
    c.apply("a", with_data(json!({"s": "1", "a": "1"})), false).unwrap();
    c.apply("b", with_data(json!({"s": "1", "b": "1"})), false).unwrap();
    c.apply("a", with_data(json!({"a": "1"})), false).unwrap();
    assert_eq!(c.object["data"], json!({"a": "1", "b": "1", "s": "1"}));
    c.apply("b", with_data(json!({"b": "1"})), false).unwrap();
    assert_eq!(c.object["data"], json!({"a": "1", "b": "1"}));
    c.apply("a", with_data(json!({})), false).unwrap();
    assert_eq!(c.object["data"], json!({"b": "1"}));
    assert_eq!(c.fields("a"), json!({"f:data": {}}));
}

#[test]
fn what_nobody_owns_stays_beside_what_is_removed() {
    let mut c = Cluster::new();
    c.apply("a", with_spec(json!({"replicas": 1, "args": ["x"]})), false).unwrap();
    c.object["spec"]["tolerations"] = json!(["by the server"]);
    c.apply("a", with_spec(json!({"args": ["x"]})), false).unwrap();
    assert_eq!(c.object["spec"], json!({"args": ["x"], "tolerations": ["by the server"]}));
    c.apply("a", with_spec(json!({})), false).unwrap();
    assert_eq!(c.object["spec"], json!({"tolerations": ["by the server"]}));
}

#[test]
fn applied_items_keep_their_order_and_others_their_place() {
    let types = types();
    let schema = Schema { types: &types, root: Some(TypeId(0)) };
    for (live, applied, result) in [
        (json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
        (json!(["a", "x", "b"]), json!(["b", "n", "a"]), json!(["x", "b", "n", "a"])),
        (json!(["a", "b"]), json!(["n", "b"]), json!(["a", "n", "b"])),
        (json!(["a", "a", "b"]), json!(["a"]), json!(["a", "b"])),
        (json!([]), json!(["a"]), json!(["a"])),
        (json!(["a"]), json!([]), json!(["a"])),
    ] {
        let mut merged = with_spec(json!({"args": live}));
        merge(schema, &mut merged, &with_spec(json!({"args": applied})));
        assert_eq!(merged["spec"]["args"], result);
    }
}

#[test]
fn an_apply_without_effect_changes_no_time_and_a_new_owner_of_equal_values_has_none() {
    let mut c = Cluster::new();
    c.apply("a", with_data(json!({"k": "1"})), false).unwrap();
    let before = (c.object.clone(), c.managed.clone());
    c.apply("a", with_data(json!({"k": "1"})), false).unwrap();
    assert_eq!((c.object.clone(), c.managed.clone()), before);
    c.apply("b", with_data(json!({"k": "1"})), false).unwrap();
    assert_eq!(c.object, before.0);
    assert_eq!(c.managed[0]["manager"], "b");
    assert!(c.managed[0].get("time").is_none());
}

#[test]
fn old_updates_are_folded_together() {
    let mut c = Cluster::new();
    let mut data = json!({});
    for n in 0..12 {
        data[format!("k{n}")] = "1".into();
        c.update(&format!("m{n}"), with_data(data.clone()));
    }
    let list = c.managed.as_array().unwrap();
    assert_eq!(list.len(), 10);
    assert_eq!(
        (&list[0]["manager"], &list[0]["fieldsV1"]),
        (&json!("ancient-changes"), &json!({"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}))
    );
}

#[test]
fn objects_without_entries_get_them_with_the_first_apply() {
    let mut c = Cluster::new();
    c.update("creator", with_data(json!({"k": "1"})));
    c.managed = Value::Null;
    c.update("other", with_data(json!({"k": "2"})));
    assert_eq!(c.managed, Value::Null);
    let result = c.apply("a", with_data(json!({"k": "3"})), false);
    assert_eq!(conflicts(result), ["\"before-first-apply\" using v1 .data.k"]);
}

#[test]
fn entries_of_another_version_are_compared_in_it_and_of_none_are_dropped() {
    let mut c = Cluster::new();
    c.apply("a", with_data(json!({"k": "1"})), false).unwrap();
    let entry = |manager: &str, version: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}, "f:x": {}}}})
    };
    c.managed = json!([c.managed[0], entry("old", "v0"), entry("lost", "v9")]);
    c.object["data"]["x"] = "1".into();
    let result = c.apply("a", with_data(json!({"k": "2"})), false);
    assert_eq!(conflicts(result), ["\"old\" using v0 .data.k"]);
    c.apply("a", with_data(json!({})), false).unwrap();
    assert_eq!(c.object["data"], json!({"k": "1", "x": "1"}));
    assert_eq!(c.fields("lost"), Value::Null);
}

#[test]
fn a_configuration_must_have_the_form_of_its_type() {
    let types = types();
    let schema = Schema { types: &types, root: Some(TypeId(0)) };
    for (spec, why) in [
        (json!({"unknown": 1}), ".spec.unknown: field not declared in schema"),
        (
            json!({"replicas": "x"}),
            ".spec.replicas: expected numeric (int or float), got &value.valueUnstructured{Value:\"x\"}",
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "a"}]}),
            ".spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (json!({"args": ["a", "a"]}), ".spec.args: duplicate entries for key [=\"a\"]"),
        (
            json!({"containers": [{}]}),
            ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" (and \
             doesn't have default value)",
        ),
        (json!([]), ".spec: expected map, got &value.valueUnstructured{Value:[]}"),
        (
            json!({"containers": [{"name": "a", "x": 1}], "y": null}),
            "errors:\n  .spec.containers[name=\"a\"].x: field not declared in schema\n  .spec.y: field not declared in schema",
        ),
    ] {
        assert_eq!(check(schema, &with_spec(spec)).unwrap_err(), why);
    }
    assert!(check(schema, &with_spec(json!({"containers": null, "free": {"any": ["thing"]}}))).is_ok());
}

#[test]
fn kubectl_takes_over_what_it_applied_in_its_old_way() {
    let mut c = Cluster::new();
    let mut object = with_data(json!({"k": "1", "o": "1"}));
    let applied = object.to_string();
    object["metadata"]["annotations"] = json!({LAST_APPLIED: applied});
    c.update("kubectl-client-side-apply", object);
    assert_eq!(conflicts(c.clone().apply("other", with_data(json!({"k": "2"})), false)).len(), 1);
    c.apply(KUBECTL, with_data(json!({"k": "2"})), false).unwrap();
    assert_eq!(c.object["data"], json!({"k": "2", "o": "1"}));
    let mut changed = c.object.clone();
    sync_last_applied(&mut changed, &with_data(json!({"k": "2"})));
    let text = changed["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert!(text.ends_with("}\n") && text.contains("\"k\":\"2\""), "{text}");
}

#[test]
fn clients_may_send_entries_or_forget_them_but_not_through_subresources() {
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "apiVersion": "v1",
            "fieldsV1": {"f:data": {"f:k": {}}}})
    };
    let (present, sent) = (json!([entry("p")]), json!([entry("x")]));
    let reset = json!([{}]);
    let damaged = json!([{"manager": "x", "fieldsType": "FieldsV2", "operation": "Apply"}]);
    let none = json!([]);
    let object = json!({"metadata": {"uid": "u"}});
    for (given, subresource, used) in [
        (Some(&sent), "", &sent),
        (Some(&sent), "status", &present),
        (Some(&present), "", &present),
        (Some(&reset), "", &Value::Null),
        (Some(&damaged), "", &present),
        (Some(&none), "", &present),
        (None, "", &present),
    ] {
        let types = types();
        let account = Cluster::new().writer(&types, "w", |w| {
            let writer = Writer { subresource, ..*w };
            update(&writer, &Entries::of(Some(&present)), given, &object, &object)
        });
        assert_eq!((value_of(&account), account.unchanged), (used.clone(), *used == present));
    }
}

#[test]
fn entries_are_read_apart_from_their_object() {
    let entries = json!([
        {"apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "a \"b\"", "operation": "Apply",
            "fieldsV1": {"f:spec": {".": {}, "k:{\"name\":\"x\\n\"}": {".": {}, "f:image": {}}, "v:\"\u{1}\"": {}}}},
        {"apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "c", "operation": "Update",
            "subresource": "status", "time": "2024-05-01T10:00:00Z", "fieldsV1": {"f:status": {"f:phase": {}}}},
    ]);
    let plain = json!({"kind": "Kind", "metadata": {"name": "a", "labels": {"l": "1"}}, "spec": [1, null]});
    let mut whole = plain.clone();
    whole["metadata"]["managedFields"] = entries.clone();
    let text = whole.to_string();
    let (object, read) = read_object(text.as_bytes()).unwrap();
    assert_eq!(object, plain);
    assert_eq!(read, Entries::of(Some(&entries)));
    assert_eq!(value_of(&read.kept()), entries);
    for damaged in [json!(1), json!([1]), json!([{"manager": "a"}]), json!([{"fieldsV1": {"x": {}}}])] {
        whole["metadata"]["managedFields"] = damaged;
        let text = whole.to_string();
        assert_eq!(read_object(text.as_bytes()).unwrap(), (plain.clone(), Entries::default()));
    }
    assert!(read_object(b"{").is_err() && read_object(b"[1]").is_ok());
}

#[test]
fn fields_that_became_one_value_are_owned_whole() {
    let mut c = Cluster::new();
    c.apply("a", with_spec(json!({"nodeSelector": {"x": "1"}})), false).unwrap();
    c.managed[0]["fieldsV1"] = json!({"f:spec": {"f:nodeSelector": {"f:x": {}}}});
    let result = c.apply("b", with_spec(json!({"nodeSelector": {"y": "1"}})), false);
    assert_eq!(conflicts(result), ["\"a\" .spec.nodeSelector"]);
}

#[test]
fn damaged_field_sets_are_refused() {
    for fields in [
        json!([]),
        json!({"x": {}}),
        json!({"f": {}}),
        json!({"f:a": 1}),
        json!({"k:[]": {}}),
        json!({"k:{": {}}),
        json!({"i:x": {}}),
        json!({"v:": {}}),
    ] {
        assert_eq!(FieldSet::parse(&fields), None, "{fields}");
    }
    let mut deep = json!({});
    for _ in 0..300 {
        deep = json!({"f:a": deep});
    }
    assert_eq!(FieldSet::parse(&deep), None);
    let mixed = json!({"k:{\"b\":1, \"a\":2}": {}, "k:{\"a\":2,\"b\":1}": {"f:x": {}}, "i:3": {}, "v:1": {}, "f:z": {}});
    let set = FieldSet::parse(&mixed).unwrap();
    assert_eq!(
        fields_of(&set),
        json!({"k:{\"a\":2,\"b\":1}": {".": {}, "f:x": {}}, "i:3": {}, "v:1": {}, "f:z": {}})
    );
    assert_eq!(set.paths(), [".z", "[3]", "[a=2,b=1]", "[=1]", "[a=2,b=1].x"]);
}

fn fields_v1() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "f:[a-c]",
        "[a-b]".prop_map(|v| format!("v:\"{v}\"")),
        (0..3).prop_map(|i| format!("k:{{\"n\":{i}}}"))
    ];
    let inner = Just(json!({})).prop_recursive(3, 12, 3, move |inner| {
        (prop::collection::btree_map(name.clone(), inner, 1..4), any::<bool>()).prop_map(
            |(children, member)| {
                let mut map: crate::Map = children.into_iter().collect();
                if member {
                    map.insert(".".into(), json!({}));
                }
                Value::Object(map)
            },
        )
    });
    inner.prop_map(|mut v| {
        v.as_object_mut().map(|m| m.remove("."));
        v
    })
}

pub(super) fn config() -> impl Strategy<Value = Value> {
    let container = |name: &'static str| {
        (prop::option::of("[x-z]"), prop::collection::btree_set(80..83_i32, 0..3)).prop_map(
            move |(image, ports)| {
                let mut c = json!({"name": name});
                if let Some(image) = image {
                    c["image"] = image.into();
                }
                if !ports.is_empty() {
                    c["ports"] = ports.into_iter().map(|p| json!({"containerPort": p})).collect();
                }
                c
            },
        )
    };
    let containers = (prop::option::of(container("a")), prop::option::of(container("b")), any::<bool>());
    let texts = || prop::collection::btree_map("[a-c]", "[x-y]", 0..3);
    let args = prop::sample::subsequence(vec!["p", "q", "r"], 0..3).prop_shuffle();
    (containers, texts(), texts(), args, prop::option::of(0..3_i32)).prop_map(
        |((first, second, turned), data, selector, args, replicas)| {
            let mut containers: Vec<Value> = first.into_iter().chain(second).collect();
            if turned {
                containers.reverse();
            }
            let mut spec = json!({});
            for (name, value) in
                [("containers", json!(containers)), ("nodeSelector", json!(selector)), ("args", json!(args))]
            {
                if !is_empty(&value) {
                    spec[name] = value;
                }
            }
            if let Some(n) = replicas {
                spec["replicas"] = n.into();
            }
            let mut object = json!({"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "n"}});
            if !is_empty(&spec) {
                object["spec"] = spec;
            }
            if !data.is_empty() {
                object["data"] = json!(data);
            }
            object
        },
    )
}

fn is_empty(value: &Value) -> bool {
    place::is_hollow(value)
}

/// All fields somebody owns.
fn all_owned(managed: &Value) -> FieldSet<'_> {
    let mut all = FieldSet::default();
    for entry in managed.as_array().into_iter().flatten() {
        all.add(&FieldSet::parse(&entry["fieldsV1"]).unwrap());
    }
    all
}

proptest! {
    #[test]
    fn field_sets_survive_writing_and_reading(fields in fields_v1()) {
        let set = FieldSet::parse(&fields).unwrap();
        let written = fields_of(&set);
        prop_assert_eq!(FieldSet::parse(&written).unwrap(), set);
    }

    #[test]
    fn sets_are_sets(a in fields_v1(), b in fields_v1()) {
        let (a, b) = (FieldSet::parse(&a).unwrap(), FieldSet::parse(&b).unwrap());
        let mut union = a.clone();
        union.add(&b);
        let mut other = b.clone();
        other.add(&a);
        prop_assert_eq!(&union, &other);
        prop_assert!(a.is_subset(&union) && b.is_subset(&union));
        let mut common = a.clone();
        common.intersect(&b);
        prop_assert!(common.is_subset(&a) && common.is_subset(&b));
        let mut rest = a.clone();
        rest.subtract(&b);
        prop_assert!(rest.is_subset(&a));
        rest.add(&common);
        prop_assert_eq!(rest, a);
    }

    #[test]
    fn applying_twice_is_applying_once(base in config(), first in config(), second in config()) {
        let mut c = Cluster::new();
        c.update("creator", base);
        c.apply("b", first, true).unwrap();
        c.apply("a", second.clone(), true).unwrap();
        let once = (c.object.clone(), c.managed.clone());
        c.apply("a", second, true).unwrap();
        prop_assert_eq!((c.object, c.managed), once);
    }

    #[test]
    fn what_is_applied_is_there_and_owned(base in config(), applied in config()) {
        let mut c = Cluster::new();
        c.update("creator", base);
        c.apply("a", applied.clone(), true).unwrap();
        let types = types();
        let schema = Schema { types: &types, root: Some(TypeId(0)) };
        prop_assert!(covers(schema, &c.object, &applied));
    }

    #[test]
    fn giving_everything_up_restores_what_others_have(base in config(), applied in config()) {
        let mut c = Cluster::new();
        c.apply("b", base, true).unwrap();
        let before = (c.object.clone(), c.fields("b"));
        if c.apply("a", applied, false).is_ok() {
            c.apply("a", json!({"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "n"}}), false).unwrap();
            let sorted = |mut v: Value| {
                for list in ["/spec/containers", "/spec/containers/0/ports", "/spec/containers/1/ports", "/spec/args"] {
                    if let Some(items) = v.pointer_mut(list).and_then(Value::as_array_mut) {
                        items.sort_by_key(Value::to_string);
                    }
                }
                v
            };
            // Applied orders stay.
            prop_assert_eq!(sorted(c.object.clone()), sorted(before.0));
            prop_assert_eq!(c.fields("b"), before.1);
            prop_assert_eq!(c.fields("a"), Value::Null);
        }
    }

    #[test]
    fn sets_and_objects_agree_on_what_goes(
        base in config(), other in config(), last in config(), next in config(), updates in any::<bool>(),
    ) {
        let mut c = Cluster::new();
        c.apply("b", base, true).unwrap();
        if updates {
            c.update("c", other);
        } else {
            c.apply("c", other, true).unwrap();
        }
        c.apply("a", last, true).unwrap();
        let types = types();
        c.writer(&types, "a", |w| {
            let mut all = Entries::of(Some(&c.managed)).0;
            let Some(at) = all.iter().position(|e| e.manager == "a") else { return };
            let last = all[at].clone();
            all[at].fields = owned_fields(w.schema, &next);
            let mut by_sets = c.object.clone();
            merge(w.schema, &mut by_sets, &next);
            let mut by_objects = by_sets.clone();
            apply::prune_by_sets(w.schema, &mut by_sets, &all, last.fields.clone());
            apply::prune_by_objects(w, &mut by_objects, &all, last, true);
            assert_eq!(by_sets, by_objects);
        });
    }

    #[test]
    fn every_field_has_an_owner(steps in prop::collection::vec((0..3_u8, any::<bool>(), config()), 1..6)) {
        let mut c = Cluster::new();
        for (who, applies, object) in steps {
            let manager = ["a", "b", "c"][who as usize];
            // Updates of objects without any entry are not tracked.
            if applies || c.managed.is_null() {
                c.apply(manager, object, true).unwrap();
            } else {
                c.update(manager, object);
            }
            let types = types();
            let schema = Schema { types: &types, root: Some(TypeId(0)) };
            let mut fields = owned_fields(schema, &c.object);
            fields.subtract(entries::stripped());
            // Order of members and holders that are left empty are nobody's.
            let owned = all_owned(&c.managed);
            let unowned: Vec<String> = {
                fields.subtract(&owned);
                fields.paths().into_iter().filter(|p| !p.contains("protocol")).collect()
            };
            prop_assert_eq!(unowned, Vec::<String>::new());
        }
    }

    #[test]
    fn comparing_tells_what_changed(a in config(), b in config()) {
        let types = types();
        let schema = Schema { types: &types, root: Some(TypeId(0)) };
        let same = compare(schema, &a, &a);
        prop_assert!(same.written.is_empty() && same.removed.is_empty());
        let there = compare(schema, &a, &b);
        let mut object = a.clone();
        remove(schema, &mut object, &there.removed);
        let gone = compare(schema, &object, &b);
        prop_assert!(gone.removed.is_empty(), "{:?}", gone.removed.paths());
    }

    #[test]
    fn hostile_objects_do_no_harm(a in any_json(), b in any_json()) {
        let types = types();
        let (a, b) = (json!({"spec": a, "metadata": b}), json!({"spec": b, "metadata": a}));
        for root in [Some(TypeId(0)), None] {
            let schema = Schema { types: &types, root };
            let _ = check(schema, &a);
            let set = compare(schema, &a, &b);
            let mut object = a.clone();
            merge(schema, &mut object, &b);
            remove(schema, &mut object, &set.written);
            let _ = covers(schema, &object, &b);
        }
    }

    #[test]
    fn without_types_values_tell_how_they_merge(a in any_json(), b in any_json()) {
        let types = types();
        let schema = Schema { types: &types, root: None };
        let (mut object, b) = (json!({"x": a}), json!({"x": b}));
        merge(schema, &mut object, &b);
        let once = object.clone();
        merge(schema, &mut object, &b);
        prop_assert_eq!(object, once);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]?".prop_map(Value::from)
    ];
    let name = prop_oneof![
        Just("containers"),
        Just("args"),
        Just("nodeSelector"),
        Just("name"),
        Just("free"),
        Just("x")
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}
