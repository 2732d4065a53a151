//! The pod template.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EnvVar, HTTPGetAction,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, Probe as PodProbe,
    ResourceRequirements, SecurityContext, TCPSocketAction, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shoal_objects::quantity::canonicalize;

use super::{claim_name, config_map_name, files, hash, labels, name_of, selector, some_list, some_map};
use crate::Application;
use crate::api::{ApplicationSpec, Probe, REVISION_LABEL};

/// The volume of the files with settings. Claims cannot be called so: they have no dots.
const FILES: &str = "config-files";

/// A template, by a hash of what it says.
pub type Revision = String;

/// The pod template that a specification asks for, and its revision, which is also a label of the pods.
pub fn template(app: &Application) -> (PodTemplateSpec, Revision) {
    let spec = &app.spec;
    let mut pod_labels = spec.pod_labels.clone();
    pod_labels.extend(labels(name_of(app)));
    let metadata = ObjectMeta {
        labels: Some(pod_labels),
        annotations: some_map(&spec.pod_annotations),
        ..ObjectMeta::default()
    };
    let mut template = PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(app)) };
    // Objects print their fields in a fixed order.
    let text = serde_json::to_vec(&template).unwrap_or_default();
    let revision = format!("{:016x}", hash(&text));
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.insert(REVISION_LABEL.to_owned(), revision.clone());
    }
    (template, revision)
}

/// The revision that a template says it is.
pub fn revision_of(template: &PodTemplateSpec) -> Option<&str> {
    template.metadata.as_ref()?.labels.as_ref()?.get(REVISION_LABEL).map(String::as_str)
}

fn pod(app: &Application) -> PodSpec {
    let spec = &app.spec;
    let security = spec.security.as_ref();
    let mut constraints = spec.topology_spread_constraints.clone();
    for constraint in &mut constraints {
        constraint.label_selector.get_or_insert_with(|| selector(app));
    }
    PodSpec {
        containers: vec![container(app)],
        volumes: some_list(&volumes(app)),
        service_account_name: Some(account(app)),
        security_context: security.and_then(|security| security.security_context.as_ref()).and_then(of_pod),
        image_pull_secrets: security.and_then(|security| some_list(&security.image_pull_secrets)),
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        node_selector: some_map(&spec.node_selector),
        tolerations: some_list(&spec.tolerations),
        affinity: spec.affinity.clone(),
        topology_spread_constraints: some_list(&constraints),
        priority_class_name: spec.priority_class_name.clone(),
        ..PodSpec::default()
    }
}

/// Always said: one that is only left out stays, because the server keeps a copy in the old field `serviceAccount`.
fn account(app: &Application) -> String {
    let named = app.spec.security.as_ref().and_then(|security| security.service_account.clone());
    named.unwrap_or_else(|| "default".to_owned())
}

fn container(app: &Application) -> Container {
    let spec = &app.spec;
    let ports: Vec<ContainerPort> = spec
        .all_ports()
        .into_iter()
        .map(|port| ContainerPort {
            container_port: port.port,
            name: Some(port.name),
            protocol: Some(port.protocol),
            ..ContainerPort::default()
        })
        .collect();
    let check = spec.health_check.as_ref();
    let probe = |probe: Option<&Probe>| probe.map(|probe| pod_probe(spec, probe));
    let context = spec.security.as_ref().and_then(|security| security.security_context.as_ref());
    Container {
        name: name_of(app).to_owned(),
        image: Some(spec.image.clone()),
        command: some_list(&spec.command),
        args: some_list(&spec.args),
        env: some_list(&environment(spec)),
        env_from: some_list(&spec.environment_from),
        ports: some_list(&ports),
        resources: spec.resources.as_ref().map(canonical),
        volume_mounts: some_list(&mounts(spec)),
        liveness_probe: probe(check.and_then(|check| check.liveness_probe.as_ref())),
        readiness_probe: probe(check.and_then(|check| check.readiness_probe.as_ref())),
        startup_probe: probe(check.and_then(|check| check.startup_probe.as_ref())),
        security_context: context.and_then(of_container),
        ..Container::default()
    }
}

fn environment(spec: &ApplicationSpec) -> Vec<EnvVar> {
    let mut variables = spec.environment.clone();
    for variable in &mut variables {
        variable.value = variable.value.take().filter(|value| !value.is_empty());
    }
    variables
}

/// Amounts as the server writes them, so that what is applied equals what is there.
fn canonical(resources: &ResourceRequirements) -> ResourceRequirements {
    let mut resources = resources.clone();
    for amounts in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
        for amount in amounts.values_mut() {
            if let Ok(text) = canonicalize(&amount.0) {
                *amount = Quantity(text);
            }
        }
    }
    resources
}

fn volumes(app: &Application) -> Vec<Volume> {
    let claims = app.spec.claims().iter().map(|claim| Volume {
        name: claim.name.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(app, claim),
            read_only: claim.read_only.then_some(true),
        }),
        ..Volume::default()
    });
    let files = config_map_name(app).map(|name| Volume {
        name: volume_of_files(&app.spec),
        config_map: Some(ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    });
    claims.chain(files).collect()
}

/// A name that no claim has.
fn volume_of_files(spec: &ApplicationSpec) -> String {
    let mut name = FILES.to_owned();
    while spec.claims().iter().any(|claim| claim.name == name) {
        name.push('x');
    }
    name
}

fn mounts(spec: &ApplicationSpec) -> Vec<VolumeMount> {
    let claims = spec.claims().iter().map(|claim| VolumeMount {
        name: claim.name.clone(),
        mount_path: claim.mount_path(),
        sub_path: claim.sub_path.clone(),
        read_only: claim.read_only.then_some(true),
        ..VolumeMount::default()
    });
    let files = spec.config_files.iter().map(|file| VolumeMount {
        name: volume_of_files(spec),
        mount_path: file.path.clone(),
        sub_path: Some(files::key(&file.path)),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    claims.chain(files).collect()
}

fn pod_probe(spec: &ApplicationSpec, probe: &Probe) -> PodProbe {
    let or_first = |port: Option<&IntOrString>| {
        let first = || IntOrString::Int(spec.all_ports().first().map_or(0, |port| port.port));
        port.cloned().unwrap_or_else(first)
    };
    PodProbe {
        http_get: probe.http_get.as_ref().map(|get| HTTPGetAction {
            path: get.path.clone(),
            port: or_first(get.port.as_ref()),
            scheme: get.scheme.clone(),
            http_headers: some_list(&get.http_headers),
            host: None,
        }),
        tcp_socket: probe
            .tcp_socket
            .as_ref()
            .map(|socket| TCPSocketAction { port: or_first(socket.port.as_ref()), host: None }),
        exec: probe.exec.clone(),
        grpc: probe.grpc.clone(),
        initial_delay_seconds: probe.initial_delay_seconds.filter(|seconds| *seconds != 0),
        period_seconds: probe.period_seconds,
        timeout_seconds: probe.timeout_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        termination_grace_period_seconds: None,
    }
}

/// The part that Kubernetes has in the pod.
fn of_pod(context: &crate::api::SecurityContext) -> Option<PodSecurityContext> {
    let pod = PodSecurityContext {
        run_as_non_root: context.run_as_non_root,
        run_as_user: context.run_as_user,
        run_as_group: context.run_as_group,
        fs_group: context.fs_group,
        supplemental_groups: some_list(&context.supplemental_groups),
        seccomp_profile: context.seccomp_profile.clone(),
        ..PodSecurityContext::default()
    };
    (pod != PodSecurityContext::default()).then_some(pod)
}

/// The part that Kubernetes has in the container.
fn of_container(context: &crate::api::SecurityContext) -> Option<SecurityContext> {
    let container = SecurityContext {
        allow_privilege_escalation: context.allow_privilege_escalation,
        read_only_root_filesystem: context.read_only_root_filesystem,
        privileged: context.privileged,
        capabilities: context.capabilities.clone(),
        ..SecurityContext::default()
    };
    (container != SecurityContext::default()).then_some(container)
}
