//! The baseline level: nothing that is known to lead to more privileges.

use serde_json::Value;
use shoal_objects::meta;

use super::findings::{Finding, containers, containers_with, distinct, named, quoted, setters};
use crate::kinds::access::{at, bool_at, field, int_at, list_at, part, str_at};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// All that a pod breaks of this level. Rules that the restricted level has in a stricter form are left to it.
pub fn check(pod: &Value, restricted: bool) -> Vec<Finding> {
    let spec = part(pod, "spec");
    let mut found = Vec::new();
    found.extend(app_armor(pod, spec));
    if !restricted {
        found.extend(capabilities(spec));
    }
    found.extend(host_namespaces(spec));
    if !restricted {
        found.extend(host_paths(spec));
    }
    found.extend(host_ports(spec));
    found.extend(host_probes(spec));
    found.extend(privileged(spec));
    found.extend(proc_mount(spec));
    found.extend(se_linux(spec));
    if !restricted {
        found.extend(seccomp(spec));
    }
    found.extend(sysctls(spec));
    found.extend(windows_host_process(spec));
    found
}

fn app_armor(pod: &Value, spec: &Value) -> Option<Finding> {
    let mut values: Vec<String> = meta::annotations(pod)
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(APP_ARMOR))
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, v)| !(v.is_empty() || *v == "runtime/default" || v.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    values.sort_unstable();
    let bad = |context: &Value| {
        let kind = str_at(part(context, "appArmorProfile"), "type").to_owned();
        !matches!(kind.as_str(), "" | "RuntimeDefault" | "Localhost")
    };
    let in_containers = containers_with(spec, bad);
    if let Some(who) = setters(bad(part(spec, "securityContext")), &in_containers) {
        values.push(format!("{who} must not set AppArmor profile type to \"Unconfined\""));
    }
    let plural = if values.len() == 1 { "" } else { "s" };
    let reason = format!("forbidden AppArmor profile{plural}");
    (!values.is_empty()).then(|| Finding::new(&reason, values.join(", ")))
}

/// Capabilities added beyond the allowed ones, and by whom.
pub fn added_capabilities<'a>(spec: &'a Value, allowed: &[&str]) -> Option<String> {
    let adds = |context: &'a Value| {
        let added = list_at(part(context, "capabilities"), "add");
        added.iter().filter_map(Value::as_str).filter(|c| !allowed.contains(c)).collect::<Vec<&str>>()
    };
    let who = containers_with(spec, |context| !adds(context).is_empty());
    let what = distinct(containers(spec).flat_map(|c| adds(part(c, "securityContext"))).collect());
    (!who.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &who),
            quoted(&what)
        )
    })
}

fn capabilities(spec: &Value) -> Option<Finding> {
    added_capabilities(spec, &CAPABILITIES).map(|detail| Finding::new("non-default capabilities", detail))
}

fn host_namespaces(spec: &Value) -> Option<Finding> {
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| bool_at(spec, name))
        .map(|name| format!("{name}=true"))
        .collect();
    (!set.is_empty()).then(|| Finding::new("host namespaces", set.join(", ")))
}

fn host_paths(spec: &Value) -> Option<Finding> {
    let volumes = list_at(spec, "volumes").iter();
    let names: Vec<&str> =
        volumes.filter(|v| field(v, "hostPath").is_some()).map(|v| str_at(v, "name")).collect();
    (!names.is_empty()).then(|| Finding::new("hostPath volumes", named("volume", &names)))
}

fn host_ports(spec: &Value) -> Option<Finding> {
    let ports = |container: &Value| -> Vec<i64> {
        let ports = list_at(container, "ports").iter();
        ports.filter_map(|port| int_at(port, "hostPort")).filter(|port| *port != 0).collect()
    };
    let who: Vec<&str> =
        containers(spec).filter(|c| !ports(c).is_empty()).map(|c| str_at(c, "name")).collect();
    let texts: Vec<String> = containers(spec).flat_map(ports).map(|port| port.to_string()).collect();
    let what = distinct(texts.iter().map(String::as_str).collect());
    (!who.is_empty()).then(|| {
        let verb = if who.len() == 1 { "uses" } else { "use" };
        let plural = if what.len() == 1 { "" } else { "s" };
        let detail = format!("{} {verb} hostPort{plural} {}", named("container", &who), what.join(", "));
        Finding::new("hostPort", detail)
    })
}

fn host_probes(spec: &Value) -> Option<Finding> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let hosts = |container| -> Vec<&str> {
        let handlers = HANDLERS.iter().filter_map(|path| at(container, path));
        let actions = handlers.flat_map(|h| [part(h, "httpGet"), part(h, "tcpSocket")]);
        actions.map(|action| str_at(action, "host")).filter(|host| !host.is_empty()).collect()
    };
    let who: Vec<&str> =
        containers(spec).filter(|c| !hosts(c).is_empty()).map(|c| str_at(c, "name")).collect();
    let who = distinct(who);
    let what = distinct(containers(spec).flat_map(hosts).collect());
    (!who.is_empty()).then(|| {
        let verb = if who.len() == 1 { "uses" } else { "use" };
        let told = named("probe or lifecycle host", &what);
        Finding::new("probe or lifecycle host", format!("{} {verb} {told}", named("container", &who)))
    })
}

fn privileged(spec: &Value) -> Option<Finding> {
    let who = containers_with(spec, |context| bool_at(context, "privileged"));
    (!who.is_empty()).then(|| {
        let detail = format!("{} must not set securityContext.privileged=true", named("container", &who));
        Finding::new("privileged", detail)
    })
}

/// Whether root in the pod is nobody outside of it.
pub fn has_own_users(spec: &Value) -> bool {
    field(spec, "hostUsers") == Some(&Value::Bool(false))
}

fn proc_mount(spec: &Value) -> Option<Finding> {
    if has_own_users(spec) {
        return None;
    }
    let bad = |context: &Value| !matches!(str_at(context, "procMount"), "" | "Default");
    let who = containers_with(spec, bad);
    let what = distinct(
        containers(spec)
            .map(|c| part(c, "securityContext"))
            .filter(|c| bad(c))
            .map(|c| str_at(c, "procMount"))
            .collect(),
    );
    (!who.is_empty()).then(|| {
        let who = named("container", &who);
        Finding::new(
            "procMount",
            format!("{who} must not set securityContext.procMount to {}", quoted(&what)),
        )
    })
}

fn se_linux(spec: &Value) -> Option<Finding> {
    fn options(context: &Value) -> &Value {
        part(context, "seLinuxOptions")
    }
    let bad = |context: &Value| {
        let options = options(context);
        !SELINUX_TYPES.contains(&str_at(options, "type"))
            || !str_at(options, "user").is_empty()
            || !str_at(options, "role").is_empty()
    };
    let of_pod = part(spec, "securityContext");
    let who = setters(bad(of_pod), &containers_with(spec, bad))?;
    let all =
        || std::iter::once(of_pod).chain(containers(spec).map(|c| part(c, "securityContext"))).map(options);
    let types =
        distinct(all().map(|o| str_at(o, "type")).filter(|kind| !SELINUX_TYPES.contains(kind)).collect());
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(named("type", &types));
    }
    for field in ["user", "role"] {
        if all().any(|o| !str_at(o, field).is_empty()) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Some(Finding::new("seLinuxOptions", detail))
}

/// Profiles that are neither the runtime's nor the node's, and who sets them.
pub fn seccomp(spec: &Value) -> Option<Finding> {
    fn kind(context: &Value) -> &str {
        str_at(part(context, "seccompProfile"), "type")
    }
    let bad = |context: &Value| !matches!(kind(context), "" | "RuntimeDefault" | "Localhost");
    let of_pod = part(spec, "securityContext");
    let who = setters(bad(of_pod), &containers_with(spec, bad))?;
    let contexts = std::iter::once(of_pod).chain(containers(spec).map(|c| part(c, "securityContext")));
    let what = distinct(contexts.filter(|context| bad(context)).map(kind).collect());
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&what));
    Some(Finding::new("seccompProfile", detail))
}

fn sysctls(spec: &Value) -> Option<Finding> {
    let all = list_at(part(spec, "securityContext"), "sysctls").iter();
    let names: Vec<&str> = all.map(|s| str_at(s, "name")).filter(|name| !SYSCTLS.contains(name)).collect();
    (!names.is_empty()).then(|| Finding::new("forbidden sysctls", names.join(", ")))
}

fn windows_host_process(spec: &Value) -> Option<Finding> {
    let bad = |context: &Value| bool_at(part(context, "windowsOptions"), "hostProcess");
    let who = setters(bad(part(spec, "securityContext")), &containers_with(spec, bad))?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Finding::new("hostProcess", detail))
}
