//! Combinations that cannot work, each with its remedy.
//!
//! Every rule stands here twice: in CEL, for the server to refuse it at once, and as a function, for specifications that were
//! stored before the rule was. A test asks both about the same specifications.

use shoal_objects::Quantity;

use super::{ApplicationSpec, Claim, Probe, ServiceType};

/// A combination that cannot work.
pub struct Rule {
    /// The place in the schema; `""` is the object itself, `probe` stands for all probes.
    pub at: &'static str,
    /// Holds when all is well.
    pub cel: &'static str,
    /// What is wrong and what helps.
    pub message: &'static str,
    /// Whether a specification breaks the rule. Rules about changes have none.
    pub broken: Option<fn(&ApplicationSpec) -> bool>,
}

const fn rule(
    at: &'static str,
    cel: &'static str,
    message: &'static str,
    broken: fn(&ApplicationSpec) -> bool,
) -> Rule {
    Rule { at, cel, message, broken: Some(broken) }
}

const fn change(at: &'static str, cel: &'static str, message: &'static str) -> Rule {
    Rule { at, cel, message, broken: None }
}

/// All rules.
pub const RULES: &[Rule] = &[
    change(
        "",
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "the Service has the application's name, which must therefore begin with a letter and have only a-z, 0-9 and '-': choose another name",
    ),
    rule(
        "spec",
        "!(has(self.port) && has(self.ports) && size(self.ports) > 0)",
        "port and ports exclude each other: keep ports, with the entry {name: http, port: N} first",
        |spec| spec.port.is_some() && !spec.ports.is_empty(),
    ),
    rule(
        "spec",
        "!has(self.network) || has(self.port) || (has(self.ports) && size(self.ports) > 0)",
        "network needs a port: set spec.port to where the program listens, or remove spec.network",
        |spec| spec.network.is_some() && spec.all_ports().is_empty(),
    ),
    rule(
        "spec",
        "(has(self.scaling) ? self.scaling.maxReplicas : self.replicas) <= 1 || !has(self.storage) || !has(self.storage.persistentVolumeClaims) || self.storage.persistentVolumeClaims.all(c, c.allowShared || c.accessModes.exists(m, m == 'ReadWriteMany' || m == 'ReadOnlyMany'))",
        "several replicas share a volume that can be used on one node only: use accessModes [ReadWriteMany], or replicas 1 without scaling, or set allowShared: true if all replicas may run on one node",
        |spec| {
            spec.most_replicas() > 1
                && spec.claims().iter().any(|claim| !claim.allow_shared && !claim.is_shareable())
        },
    ),
    rule(
        "spec",
        "(has(self.scaling) ? self.scaling.maxReplicas : self.replicas) <= 1 || !has(self.storage) || !has(self.storage.persistentVolumeClaims) || self.storage.persistentVolumeClaims.all(c, c.accessModes.exists(m, m != 'ReadWriteOncePod'))",
        "several replicas share a volume that can be used by one pod only: use other accessModes than ReadWriteOncePod, or replicas 1 without scaling",
        |spec| spec.most_replicas() > 1 && spec.claims().iter().any(Claim::is_for_one_pod),
    ),
    rule(
        "spec",
        "!has(self.scaling) || (!has(self.scaling.targetCPUUtilizationPercentage) && has(self.scaling.targetMemoryUtilizationPercentage)) || (has(self.resources) && ((has(self.resources.requests) && 'cpu' in self.resources.requests) || (has(self.resources.limits) && 'cpu' in self.resources.limits)))",
        "scaling by processor time is in percent of what is requested, and nothing is: set resources.requests.cpu",
        |spec| {
            spec.scaling.as_ref().is_some_and(|scaling| scaling.cpu_target().is_some())
                && !requests(spec, "cpu")
        },
    ),
    rule(
        "spec",
        "!has(self.scaling) || !has(self.scaling.targetMemoryUtilizationPercentage) || (has(self.resources) && ((has(self.resources.requests) && 'memory' in self.resources.requests) || (has(self.resources.limits) && 'memory' in self.resources.limits)))",
        "scaling by memory is in percent of what is requested, and nothing is: set resources.requests.memory",
        |spec| {
            spec.scaling.as_ref().is_some_and(|scaling| scaling.target_memory.is_some())
                && !requests(spec, "memory")
        },
    ),
    rule(
        "spec",
        "!has(self.healthCheck) || has(self.port) || (has(self.ports) && size(self.ports) > 0) || ((!has(self.healthCheck.livenessProbe) || ((!has(self.healthCheck.livenessProbe.httpGet) || has(self.healthCheck.livenessProbe.httpGet.port)) && (!has(self.healthCheck.livenessProbe.tcpSocket) || has(self.healthCheck.livenessProbe.tcpSocket.port)))) && (!has(self.healthCheck.readinessProbe) || ((!has(self.healthCheck.readinessProbe.httpGet) || has(self.healthCheck.readinessProbe.httpGet.port)) && (!has(self.healthCheck.readinessProbe.tcpSocket) || has(self.healthCheck.readinessProbe.tcpSocket.port)))) && (!has(self.healthCheck.startupProbe) || ((!has(self.healthCheck.startupProbe.httpGet) || has(self.healthCheck.startupProbe.httpGet.port)) && (!has(self.healthCheck.startupProbe.tcpSocket) || has(self.healthCheck.startupProbe.tcpSocket.port)))))",
        "a probe has no port and neither has the application: set spec.port or the probe's port",
        |spec| spec.all_ports().is_empty() && probes(spec).any(lacks_port),
    ),
    rule(
        "spec",
        "self.progressDeadlineSeconds > self.minReadySeconds",
        "no rollout could end in time: progressDeadlineSeconds must be greater than minReadySeconds",
        |spec| spec.progress_deadline_seconds <= spec.min_ready_seconds,
    ),
    rule(
        "spec",
        "!has(self.podLabels) || !('app' in self.podLabels || 'app.kubernetes.io/managed-by' in self.podLabels || 'apps.example.com/revision' in self.podLabels)",
        "podLabels cannot set app, app.kubernetes.io/managed-by or apps.example.com/revision, by which the pods are found: use other labels",
        |spec| {
            [super::APP_LABEL, super::MANAGED_BY_LABEL, super::REVISION_LABEL]
                .iter()
                .any(|label| spec.pod_labels.contains_key(*label))
        },
    ),
    rule(
        "spec/ports",
        "self.all(a, self.exists_one(b, b.port == a.port && b.protocol == a.protocol))",
        "two ports have the same number and protocol: remove one of them",
        |spec| {
            let same = |a: &super::Port, b: &super::Port| a.port == b.port && a.protocol == b.protocol;
            spec.ports.iter().any(|a| spec.ports.iter().filter(|b| same(a, b)).count() > 1)
        },
    ),
    rule(
        "spec/scaling",
        "self.minReplicas <= self.maxReplicas",
        "minReplicas is greater than maxReplicas: raise maxReplicas or lower minReplicas",
        |spec| spec.scaling.as_ref().is_some_and(|scaling| scaling.min_replicas > scaling.max_replicas),
    ),
    rule(
        "spec/resources",
        "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
        "more is requested than the limit allows: lower the request or raise the limit",
        requests_beyond_limits,
    ),
    rule(
        "spec/network",
        "self.serviceType == 'LoadBalancer' || !has(self.loadBalancer) || !has(self.loadBalancer.sourceRanges) || size(self.loadBalancer.sourceRanges) == 0",
        "sourceRanges work with a load balancer only: set serviceType: LoadBalancer, or use networkPolicy instead",
        |spec| {
            spec.network.as_ref().is_some_and(|network| {
                network.service_type != ServiceType::LoadBalancer
                    && network
                        .load_balancer
                        .as_ref()
                        .is_some_and(|balancer| !balancer.source_ranges.is_empty())
            })
        },
    ),
    change(
        "spec/network/loadBalancer/sourceRanges/[]",
        "isCIDR(self)",
        "this is no network: write it as ADDRESS/BITS, such as 10.0.0.0/8",
    ),
    rule(
        "spec/security/securityContext",
        "!(has(self.runAsNonRoot) && self.runAsNonRoot && has(self.runAsUser) && self.runAsUser == 0)",
        "user 0 is root, which runAsNonRoot refuses: choose another runAsUser, such as 1000, or remove runAsNonRoot",
        |spec| {
            let context = spec.security.as_ref().and_then(|security| security.security_context.as_ref());
            context.is_some_and(|context| {
                context.run_as_non_root == Some(true) && context.run_as_user == Some(0)
            })
        },
    ),
    rule(
        "spec/environment/[]",
        "!(has(self.value) && has(self.valueFrom))",
        "value and valueFrom exclude each other: remove one of them",
        |spec| {
            spec.environment.iter().any(|variable| variable.value.is_some() && variable.value_from.is_some())
        },
    ),
    rule(
        "spec/environment/[]/valueFrom",
        "[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), has(self.resourceFieldRef)].filter(x, x).size() == 1",
        "a value comes from exactly one place: set one of configMapKeyRef, secretKeyRef, fieldRef and resourceFieldRef",
        |spec| {
            spec.environment.iter().filter_map(|variable| variable.value_from.as_ref()).any(|from| {
                count([
                    from.config_map_key_ref.is_some(),
                    from.secret_key_ref.is_some(),
                    from.field_ref.is_some(),
                    from.resource_field_ref.is_some(),
                ]) != 1
            })
        },
    ),
    rule(
        "spec/environmentFrom/[]",
        "has(self.configMapRef) != has(self.secretRef)",
        "variables come from exactly one object: set one of configMapRef and secretRef",
        |spec| {
            spec.environment_from
                .iter()
                .any(|from| from.config_map_ref.is_some() == from.secret_ref.is_some())
        },
    ),
    rule(
        "probe",
        "[has(self.httpGet), has(self.tcpSocket), has(self.exec), has(self.grpc)].filter(x, x).size() == 1",
        "a probe checks in exactly one way: set one of httpGet, tcpSocket, exec and grpc",
        |spec| {
            probes(spec).any(|probe| {
                count([
                    probe.http_get.is_some(),
                    probe.tcp_socket.is_some(),
                    probe.exec.is_some(),
                    probe.grpc.is_some(),
                ]) != 1
            })
        },
    ),
    rule(
        "spec/healthCheck",
        "(!has(self.livenessProbe) || !has(self.livenessProbe.successThreshold) || self.livenessProbe.successThreshold == 1) && (!has(self.startupProbe) || !has(self.startupProbe.successThreshold) || self.startupProbe.successThreshold == 1)",
        "livenessProbe and startupProbe succeed at once: remove successThreshold or set it to 1",
        |spec| {
            let check = spec.health_check.as_ref();
            let of = |probe: Option<&Probe>| {
                probe.and_then(|probe| probe.success_threshold).is_some_and(|n| n != 1)
            };
            check.is_some_and(|check| of(check.liveness_probe.as_ref()) || of(check.startup_probe.as_ref()))
        },
    ),
    rule(
        "spec/strategy",
        "!(self.type == 'Recreate' && has(self.rollingUpdate))",
        "rollingUpdate has no meaning when all pods are replaced at once: remove it, or set type: RollingUpdate",
        |spec| {
            spec.strategy.as_ref().is_some_and(|strategy| {
                strategy.type_.as_deref() == Some("Recreate") && strategy.rolling_update.is_some()
            })
        },
    ),
    rule(
        "spec/strategy/rollingUpdate",
        "!(has(self.maxSurge) && has(self.maxUnavailable) && string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
        "with neither a pod more nor a pod fewer nothing can be replaced: raise maxSurge or maxUnavailable",
        |spec| {
            spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref()).is_some_and(
                |update| {
                    [&update.max_surge, &update.max_unavailable]
                        .into_iter()
                        .all(|value| value.as_ref().is_some_and(is_zero))
                },
            )
        },
    ),
    rule(
        "spec/podDisruptionBudget",
        "has(self.minAvailable) != has(self.maxUnavailable)",
        "a budget has exactly one bound: set one of minAvailable and maxUnavailable",
        |spec| {
            spec.pod_disruption_budget
                .as_ref()
                .is_some_and(|budget| budget.min_available.is_some() == budget.max_unavailable.is_some())
        },
    ),
    rule(
        "spec/storage/persistentVolumeClaims",
        "self.all(a, !has(a.mountPath) || self.exists_one(b, has(b.mountPath) && b.mountPath == a.mountPath))",
        "two volumes have the same mountPath: give each its own",
        |spec| {
            let paths = || spec.claims().iter().filter_map(|claim| claim.mount_path.as_ref());
            paths().any(|path| paths().filter(|other| *other == path).count() > 1)
        },
    ),
    rule(
        "spec/storage/persistentVolumeClaims/[]",
        "quantity(string(self.size)).isGreaterThan(quantity('0'))",
        "a volume must have a size, such as 10Gi",
        |spec| {
            spec.claims()
                .iter()
                .any(|claim| !Quantity::parse(&claim.size.0).is_ok_and(|size| size > Quantity::from_milli(0)))
        },
    ),
    change(
        "spec/storage/persistentVolumeClaims/[]",
        "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
        "a volume can grow but not shrink: keep the size, or add another volume and move the data",
    ),
    change(
        "spec/storage/persistentVolumeClaims/[]",
        "self.accessModes.all(m, m in oldSelf.accessModes) && oldSelf.accessModes.all(m, m in self.accessModes)",
        "accessModes of a volume cannot be changed: add another volume and move the data",
    ),
    change(
        "spec/storage/persistentVolumeClaims/[]",
        "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
        "storageClassName of a volume cannot be changed: add another volume and move the data",
    ),
];

/// What is wrong with a specification that was stored, if anything.
pub fn broken(spec: &ApplicationSpec) -> Vec<&'static str> {
    let mut messages: Vec<&'static str> = RULES
        .iter()
        .filter(|rule| rule.broken.is_some_and(|broken| broken(spec)))
        .map(|rule| rule.message)
        .collect();
    if spec.image.is_empty() || spec.image.contains(char::is_whitespace) {
        messages.push("there is no image to run: set spec.image");
    }
    messages
}

fn count<const N: usize>(facts: [bool; N]) -> usize {
    facts.into_iter().filter(|fact| *fact).count()
}

fn probes(spec: &ApplicationSpec) -> impl Iterator<Item = &Probe> {
    spec.health_check.iter().flat_map(super::HealthCheck::probes)
}

fn lacks_port(probe: &Probe) -> bool {
    probe.http_get.as_ref().is_some_and(|get| get.port.is_none())
        || probe.tcp_socket.as_ref().is_some_and(|socket| socket.port.is_none())
}

/// Limits count: without a request, the limit is the request.
fn requests(spec: &ApplicationSpec, name: &str) -> bool {
    let Some(resources) = &spec.resources else { return false };
    [&resources.requests, &resources.limits].into_iter().flatten().any(|amounts| amounts.contains_key(name))
}

fn requests_beyond_limits(spec: &ApplicationSpec) -> bool {
    let Some(resources) = &spec.resources else { return false };
    let (Some(requests), Some(limits)) = (&resources.requests, &resources.limits) else { return false };
    requests.iter().any(|(name, request)| {
        limits.get(name).is_some_and(|limit| match (Quantity::parse(&request.0), Quantity::parse(&limit.0)) {
            (Ok(request), Ok(limit)) => request > limit,
            _ => true,
        })
    })
}

fn is_zero(value: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString) -> bool {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match value {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(text) => text == "0" || text == "0%",
    }
}
