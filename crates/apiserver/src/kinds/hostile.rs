//! No rule of any kind panics, whatever stands where.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shoal_objects::{Entropy, Errors};

use super::service_alloc::Allocator;
use super::{event, fields, namespace, options, rules, token_request};

const RESOURCES: [(&str, &str); 52] = [
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "networkpolicies"),
    ("networking.k8s.io", "servicecidrs"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
];

/// Where most rules look; everything else is reached through these often enough.
const NAMES: [&str; 61] = [
    "accessModes",
    "addresses",
    "allocatable",
    "apiGroups",
    "backend",
    "capacity",
    "cidr",
    "cidrs",
    "clientConfig",
    "clusterIP",
    "clusterIPs",
    "conditions",
    "containers",
    "controller",
    "csi",
    "data",
    "default",
    "drivers",
    "effect",
    "egress",
    "endpoints",
    "except",
    "expirationSeconds",
    "externalIPs",
    "externalName",
    "finalizers",
    "from",
    "hard",
    "hostPath",
    "http",
    "ingress",
    "ipBlock",
    "ipFamilies",
    "key",
    "kind",
    "labels",
    "limited",
    "limits",
    "matchConstraints",
    "matchExpressions",
    "max",
    "metadata",
    "min",
    "name",
    "nodePort",
    "operator",
    "path",
    "paths",
    "podCIDR",
    "podCIDRs",
    "port",
    "ports",
    "requests",
    "resources",
    "rules",
    "selector",
    "service",
    "subjects",
    "subsets",
    "taints",
    "type",
];
const ROOTS: [&str; 12] = [
    "metadata",
    "spec",
    "status",
    "data",
    "stringData",
    "webhooks",
    "subsets",
    "endpoints",
    "ports",
    "rules",
    "roleRef",
    "subjects",
];
const TEXTS: [&str; 18] = [
    "",
    "None",
    "x",
    "10.96.0.1",
    "::1",
    "10.0.0.0/8",
    "1Gi",
    "-1",
    "1e400",
    "é/ü",
    "a/b",
    "..",
    "LoadBalancer",
    "NodePort",
    "ExternalName",
    "Local",
    "Container",
    "kubernetes.io/dockerconfigjson",
];

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![Just(i64::MIN), Just(i64::MAX), -2..70_000_i64].prop_map(Value::from),
        Just(json!(1.5e300)),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => object(&NAMES, inner),
        ]
    })
}

fn object(
    names: &'static [&'static str],
    inner: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(names), inner), 0..5).prop_map(|fields| {
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_object_makes_a_rule_panic(new in object(&ROOTS, anything()), old in object(&ROOTS, anything())) {
        for (group, resource) in RESOURCES {
            let version = if group == "autoscaling" { "v2" } else { "v1" };
            let rules = rules(group, version, resource);
            let (mut created, mut updated) = (new.clone(), new.clone());
            let mut errors = Errors::new();
            (rules.default)(&mut created);
            (rules.prepare_create)(&mut created);
            (rules.validate)(&created, &mut errors);
            (rules.prepare_update)(&mut updated, &old);
            (rules.validate)(&updated, &mut errors);
            (rules.validate_update)(&updated, &old, &mut errors);
            (rules.prepare_status)(&mut updated, &old);
            (rules.validate_status)(&updated, &old, &mut errors);
            for name in fields::supported(group, resource) {
                fields::value(&new, name);
            }
        }
        let mut errors = Errors::new();
        for mut body in [new.clone(), old.clone()] {
            options::validate_delete(&body, &mut errors);
            options::validate_scale(&body, &mut errors);
            options::validate_eviction(&body, &mut errors);
            namespace::validate_finalize(&body, &mut errors);
            token_request::default(&mut body);
            token_request::validate(&body, &mut errors);
            event::core_to_events(&mut body);
            event::events_to_core(&mut body);
        }
        let mut allocator = Allocator::default();
        allocator.occupy(&old);
        let mut service = new;
        if let Ok(reserved) = allocator.allocate(&mut service, Some(&old), &Entropy::seeded(1)) {
            allocator.commit(reserved);
        }
        allocator.release(&service);
    }

    #[test]
    fn defaults_are_stable(object in object(&ROOTS, anything())) {
        for (group, resource) in RESOURCES {
            let rules = rules(group, if group == "autoscaling" { "v2" } else { "v1" }, resource);
            let mut once = object.clone();
            (rules.default)(&mut once);
            let mut twice = once.clone();
            (rules.default)(&mut twice);
            prop_assert_eq!(once, twice, "{}/{}", group, resource);
        }
    }
}
