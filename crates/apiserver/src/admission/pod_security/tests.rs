use serde_json::json;

use super::*;

fn told(spec: Value, level: Level) -> String {
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    findings(&pod, level).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_plain_pod_is_baseline_but_not_restricted() {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    assert_eq!(told(spec.clone(), Level::Baseline), "");
    assert_eq!(
        told(spec, Level::Restricted),
        "allowPrivilegeEscalation != false (container \"c\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
}

#[test]
fn a_careful_pod_is_restricted() {
    let spec = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}],
        "containers": [{"name": "c", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        }}],
    });
    assert_eq!(told(spec, Level::Restricted), "");
}

#[test]
fn what_leads_out_of_the_pod_is_not_baseline() {
    for (spec, text) in [
        (json!({"hostNetwork": true, "hostPID": true}), "host namespaces (hostNetwork=true, hostPID=true)"),
        (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), "hostPath volumes (volume \"v\")"),
        (
            json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 81}]}]}),
            "hostPort (containers \"a\", \"b\" use hostPorts 80, 81)",
        ),
        (
            json!({"initContainers": [{"name": "a", "securityContext": {"privileged": true}}]}),
            "privileged (container \"a\" must not set securityContext.privileged=true)",
        ),
        (
            json!({"containers": [{"name": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}}]}),
            "non-default capabilities (container \"a\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
        ),
        (
            json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]}),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"10.0.0.1\")",
        ),
        (
            json!({"containers": [{"name": "a", "securityContext": {"procMount": "Unmasked"}}]}),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ] {
        assert_eq!(told(spec, Level::Baseline), text);
    }
}

#[test]
fn labels_that_make_no_sense_are_told_and_taken_for_the_strictest() {
    let labels = |labels: Value| Policy::of(&json!({"metadata": {"labels": labels}}));
    let (policy, wrong) = labels(json!({"pod-security.kubernetes.io/enforce": "loose"}));
    assert_eq!((policy.enforce.level, wrong.len()), (Level::Restricted, 1));
    let (policy, wrong) = labels(json!({
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30",
    }));
    assert_eq!((policy.enforce.to_string().as_str(), wrong.len()), ("baseline:v1.30", 0));
    assert_eq!(policy.warn, policy.enforce, "what is enforced is warned of");
    assert_eq!(labels(json!({"pod-security.kubernetes.io/warn-version": "1.30"})).1.len(), 1);
    assert_eq!(labels(json!({})), (Policy::default(), Vec::new()));
}

#[test]
fn changes_of_images_are_looked_at_again() {
    let pod = |image: &str, label: &str| json!({"metadata": {"labels": {"a": label}}, "spec": {"containers": [{"name": "c", "image": image}]}});
    assert!(!is_significant(&pod("a", "1"), &pod("a", "2")));
    assert!(is_significant(&pod("a", "1"), &pod("b", "1")));
}
