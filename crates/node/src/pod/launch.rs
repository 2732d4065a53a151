//! From the specification of a container to what the sandbox runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::container::log_path;
use super::worker::View;
use crate::addresses::local;
use crate::agent::Node;
use crate::dns::resolv_conf;
use crate::env::{Sources, expand, variables};
use crate::images::command_line;
use crate::process::private_dir;
use crate::sandbox::{Mount, Network, Spec};
use crate::volumes::{self, Places};

/// Where every container finds the credentials of its ServiceAccount; a pod can do without.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How much of what a container says at its end is kept.
const MESSAGE_LIMIT: usize = 4096;

/// Why a container cannot be started now.
pub struct Refusal {
    /// As it is shown in the container's status.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What is run, and the container's directory.
pub fn specification(
    node: &Node,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    places: &Places,
    dir: &Path,
) -> Result<(Spec, PathBuf), Refusal> {
    let config = |message: String| Refusal { reason: "CreateContainerConfigError", message };
    let broken = |message: String| Refusal { reason: "CreateContainerError", message };
    let image = node
        .resolve_image(container.image.as_deref().unwrap_or_default())
        .map_err(|e| Refusal { reason: "ErrImagePull", message: e.to_string() })?;
    let own = variables(pod, container, sources).map_err(config)?;
    let value = |name: &str| own.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let expanded = |text: &String| expand(text, &value);
    let list = |list: &Option<Vec<String>>| -> Vec<String> { list.iter().flatten().map(expanded).collect() };
    let command = command_line(image, &list(&container.command), &list(&container.args));

    let hostname = hostname(pod);
    let own_ip = sources.pod_ip.parse().map_err(|e| broken(format!("the pod has no address: {e}")))?;
    let local_ip = local(own_ip);
    let mut env: Vec<(String, String)> = vec![
        ("PATH".to_owned(), node.path.clone()),
        ("HOME".to_owned(), node.home.clone()),
        ("HOSTNAME".to_owned(), hostname.clone()),
        // Where nobody translates, this one can be bound.
        ("POD_IP".to_owned(), local_ip.to_string()),
    ];
    let images_own = image.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut add = |name: String, value: String| match env.iter_mut().find(|(key, _)| *key == name) {
        Some(known) => known.1 = value,
        None => env.push((name, value)),
    };
    images_own.for_each(|(name, value)| add(name, value));
    own.iter().cloned().for_each(|(name, value)| add(name, value));
    if container.tty == Some(true) && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }

    let made = |path: PathBuf| private_dir(&path).map_err(|e| broken(e.to_string()));
    let home = made(dir.join("containers").join(&container.name))?;
    let (root, tmp) = (made(home.join("root"))?, made(home.join("tmp"))?);
    let mut mounts = volumes::mounts(container, places, &|text| expand(text, &value)).map_err(config)?;
    let needs_mounts = mounts.iter().any(|mount| mount.target != Path::new(ACCOUNT));
    mounts.extend(own_files(dir, &mounts));
    let message = home.join("termination-log");
    std::fs::write(&message, "").map_err(|e| broken(e.to_string()))?;
    let message_path = container.termination_message_path.as_deref().unwrap_or_default();
    if message_path.starts_with('/') {
        mounts.push(Mount { source: message, target: message_path.into(), read_only: false });
    }

    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let of_container = container.security_context.as_ref();
    let id = |own: Option<i64>, shared: Option<i64>| own.or(shared).and_then(|id| u32::try_from(id).ok());
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let network = Network { pod_ip: local_ip, control: node.launcher.control().to_owned() };
    let network = (!host_network).then_some(network);
    let working_dir = container.working_dir.clone().filter(|dir| !dir.is_empty());
    let spec = Spec {
        command,
        env,
        working_dir: working_dir.or_else(|| image.working_dir.clone()).unwrap_or_else(|| "/".to_owned()),
        root,
        tmp,
        hostname,
        mounts,
        needs_mounts,
        network,
        user: id(of_container.and_then(|c| c.run_as_user), of_pod.and_then(|p| p.run_as_user)),
        group: id(of_container.and_then(|c| c.run_as_group), of_pod.and_then(|p| p.run_as_group)),
        ..Spec::default()
    };
    Ok((spec, home))
}

/// The pod's host name.
fn hostname(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let name = own.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

/// Files of the pod that the node writes, where the pod does not have something of its own.
fn own_files(dir: &Path, mounts: &[Mount]) -> Vec<Mount> {
    let files = [("hosts", "/etc/hosts"), ("hostname", "/etc/hostname"), ("resolv.conf", "/etc/resolv.conf")];
    let mine = files.iter().map(|(file, target)| Mount {
        source: dir.join(file),
        target: PathBuf::from(target),
        read_only: false,
    });
    mine.filter(|file| file.source.exists() && !mounts.iter().any(|mount| mount.target == file.target))
        .collect()
}

/// Writes the pod's `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf`.
pub fn write_files(node: &Node, pod: &Pod, view: &View) -> Result<(), String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let name = hostname(pod);
    let mut hosts = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    );
    let full = spec.subdomain.filter(|domain| !domain.is_empty()).map(|domain| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        format!("{name}.{domain}.{namespace}.svc.{}\t", node.cluster_domain)
    });
    let _ = writeln!(hosts, "{}\t{}{name}", view.ip, full.unwrap_or_default());
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        let _ = writeln!(hosts, "{}\t{}", alias.ip, names.join("\t"));
    }
    hosts.push_str(&node.directory.names_for(pod.metadata.namespace.as_deref().unwrap_or_default()));
    let write = |file: &str, text: &str| {
        // In place: the file is mounted in containers.
        std::fs::write(view.dir.join(file), text).map_err(|e| format!("cannot write the pod's {file}: {e}"))
    };
    write("hosts", &hosts)?;
    write("hostname", &format!("{name}\n"))?;
    let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    write("resolv.conf", &resolv_conf(pod, &host, node.directory.dns().as_deref()))
}

/// What a container wrote for its end, or the last lines of its log if it wants that.
pub fn termination_message(pod: &Pod, view: &View, container: &str, code: i32) -> String {
    let home = view.dir.join("containers").join(container);
    let own = std::fs::read(home.join("termination-log")).unwrap_or_default();
    let own = &own[..own.len().min(MESSAGE_LIMIT)];
    if !own.is_empty() || code == 0 {
        return String::from_utf8_lossy(own).into_owned();
    }
    let (init, main) = super::plan::containers(pod);
    let wants_log = init.iter().chain(main).any(|c| {
        c.name == container && c.termination_message_policy.as_deref() == Some("FallbackToLogsOnError")
    });
    if !wants_log {
        return String::new();
    }
    let attempt = view.attempts.lock().get(container).copied().unwrap_or(0);
    let options = crate::logs::Options { tail: Some(80), ..Default::default() };
    let text = crate::logs::Reader::open(&log_path(&view.dir, container, attempt), options)
        .and_then(|mut reader| reader.read(usize::MAX))
        .unwrap_or_default();
    let from = text.len().saturating_sub(2048);
    String::from_utf8_lossy(&text[from..]).into_owned()
}
