//! Small objects and the cells they are shown with, by family.

use proptest::prelude::*;
use serde_json::{Value, json};
use shoal_objects::Timestamp;

use super::*;
use crate::registry::Registry;

/// 2026-01-01T01:00:00Z
const NOW: Timestamp = Timestamp(1_767_229_200_000_000);

/// The cells of an object that is an hour old, without name and age.
fn cells(group: &str, kind: &str, mut object: Value) -> Value {
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let shown = columns(group, kind).iter().filter(|c| !["Name", "Age"].contains(&c.name));
    shown.map(|column| (column.cell)(&object, NOW)).collect()
}

fn names(group: &str, kind: &str, wide: bool) -> Vec<&'static str> {
    columns(group, kind).iter().filter(|c| wide || c.priority == 0).map(|c| c.name).collect()
}

fn options(include: Include) -> Options {
    Options { version: "v1", include, headers: true }
}

fn pod(spec: Value, status: Value) -> Value {
    let object: Value = [("spec".to_owned(), spec), ("status".to_owned(), status)].into_iter().collect();
    let cells = cells("", "Pod", object);
    json!([cells[0], cells[1], cells[2]])
}

#[test]
fn a_pod_without_container_statuses_shows_its_phase() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(pod(spec.clone(), json!({"phase": "Pending"})), json!(["0/2", "Pending", "0"]));
    let evicted = json!({"phase": "Failed", "reason": "Evicted"});
    assert_eq!(pod(spec.clone(), evicted), json!(["0/2", "Evicted", "0"]));
    let gated = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    assert_eq!(pod(spec, gated), json!(["0/2", "SchedulingGated", "0"]));
}

#[test]
fn a_pod_is_told_by_the_container_that_is_in_the_way() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let status = json!({"phase": "Running", "containerStatuses": [
        {"name": "a", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
         "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}},
        {"name": "b", "restartCount": 1, "ready": true, "state": {"running": {}}}]});
    assert_eq!(pod(spec.clone(), status), json!(["1/2", "CrashLoopBackOff", "5 (5m ago)"]));
    let ended = |terminated: Value| {
        let status = json!({"containerStatuses": [{"name": "a", "state": {"terminated": terminated}}]});
        pod(spec.clone(), status)[1].clone()
    };
    assert_eq!(ended(json!({"exitCode": 0, "reason": "Completed"})), "Completed");
    assert_eq!(ended(json!({"exitCode": 137, "signal": 9})), "Signal:9");
    assert_eq!(ended(json!({"exitCode": 3})), "ExitCode:3");
}

#[test]
fn a_completed_container_beside_a_running_one_leaves_the_pod_running() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let status = |ready: &str| {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "b", "ready": true, "state": {"running": {}}}]})
    };
    assert_eq!(pod(spec.clone(), status("True")), json!(["1/2", "Running", "0"]));
    assert_eq!(pod(spec, status("False")), json!(["1/2", "NotReady", "0"]));
}

#[test]
fn an_init_container_that_is_not_done_has_the_word() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    let done = json!({"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}});
    let with = |state: Value| {
        let second = json!({"name": "j", "restartCount": 2, "state": state});
        pod(spec.clone(), json!({"phase": "Pending", "initContainerStatuses": [done, second]}))
    };
    assert_eq!(with(json!({"running": {}})), json!(["0/1", "Init:1/2", "3"]));
    assert_eq!(with(json!({"waiting": {"reason": "PodInitializing"}})), json!(["0/1", "Init:1/2", "3"]));
    assert_eq!(
        with(json!({"waiting": {"reason": "ErrImagePull"}})),
        json!(["0/1", "Init:ErrImagePull", "3"])
    );
    assert_eq!(with(json!({"terminated": {"exitCode": 2}})), json!(["0/1", "Init:ExitCode:2", "3"]));
    assert_eq!(
        with(json!({"terminated": {"exitCode": 2, "signal": 9}})),
        json!(["0/1", "Init:Signal:9", "3"])
    );
    let error = json!({"terminated": {"exitCode": 2, "reason": "Error"}});
    assert_eq!(with(error), json!(["0/1", "Init:Error", "3"]));
    assert_eq!(
        with(json!({"terminated": {"exitCode": 0}})),
        json!(["0/1", "Pending", "0"]),
        "forgotten when done"
    );
}

#[test]
fn a_sidecar_counts_as_a_container() {
    let spec =
        json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let status = json!({"phase": "Running",
        "initContainerStatuses": [
            {"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}}],
        "containerStatuses": [{"name": "a", "restartCount": 1, "ready": true, "state": {"running": {}}}]});
    assert_eq!(pod(spec, status), json!(["2/2", "Running", "3"]));
}

#[test]
fn a_deleted_pod_is_terminating_until_it_ends_or_its_node_is_lost() {
    let shown = |status: Value| {
        let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status});
        cells("", "Pod", object)[1].clone()
    };
    assert_eq!(shown(json!({"phase": "Running"})), "Terminating");
    assert_eq!(shown(json!({"phase": "Succeeded"})), "Succeeded");
    assert_eq!(shown(json!({"phase": "Running", "reason": "NodeLost"})), "Unknown");
}

#[test]
fn wide_pods_show_where_they_are() {
    let object = json!({
        "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
        "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd::1"}], "conditions": [{"type": "b", "status": "True"}]}});
    let shown = cells("", "Pod", object);
    assert_eq!(
        shown.as_array().unwrap()[3..],
        [json!("10.0.0.1"), json!("n"), json!("<none>"), json!("1/2")]
    );
}

#[test]
fn rows_of_finished_pods_are_marked() {
    let pods = [json!({"status": {"phase": "Failed"}}), json!({"status": {"phase": "Running"}})];
    let table = table("", "Pod", &pods, json!({}), options(Include::None), NOW);
    assert_eq!(table["rows"][0]["conditions"][0]["reason"], "Failed");
    assert!(table["rows"][1].get("conditions").is_none());
}

#[test]
fn workloads_compare_what_is_with_what_is_wanted() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}],
        "nodeSelector": {"z": "1", "d": "2"}}});
    let object = json!({
        "spec": {"replicas": 3, "template": template,
            "selector": {"matchLabels": {"z": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}},
        "status": {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1,
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
            "updatedNumberScheduled": 2, "numberAvailable": 1}});
    let deployment = cells("apps", "Deployment", object.clone());
    assert_eq!(deployment, json!(["1/3", 2, 1, "a,b", "i:1,j", "b,z=1"]));
    assert_eq!(cells("apps", "ReplicaSet", object.clone()), json!([3, 2, 1, "a,b", "i:1,j", "b,z=1"]));
    assert_eq!(cells("apps", "StatefulSet", object.clone()), json!(["1/3", "a,b", "i:1,j"]));
    let daemons = cells("apps", "DaemonSet", object);
    assert_eq!(daemons, json!([5, 4, 3, 2, 1, "d=2,z=1", "a,b", "i:1,j", "b,z=1"]));
    let controller = json!({"spec": {"replicas": 1, "selector": {"a": "b"}}});
    assert_eq!(cells("", "ReplicationController", controller), json!([1, 0, 0, "", "", "a=b"]));
}

#[test]
fn a_revision_names_its_controller() {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true});
    let owned = json!({"metadata": {"ownerReferences": [owner]}, "revision": 7});
    assert_eq!(cells("apps", "ControllerRevision", owned), json!(["statefulset.apps/web", 7]));
    assert_eq!(cells("apps", "ControllerRevision", json!({})), json!(["<none>", 0]));
}

#[test]
fn jobs_show_how_far_they_are() {
    let job = |spec: Value, status: Value| {
        let shown = cells("batch", "Job", json!({"spec": spec, "status": status}));
        json!([shown[0], shown[1], shown[2]])
    };
    let started = json!({"startTime": "2026-01-01T00:50:00Z", "succeeded": 1});
    assert_eq!(job(json!({"completions": 3}), started), json!(["Running", "1/3", "10m"]));
    let complete = json!({"startTime": "2026-01-01T00:50:00Z", "completionTime": "2026-01-01T00:50:30Z",
        "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    assert_eq!(job(json!({}), complete), json!(["Complete", "1/1", "30s"]));
    let suspended = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
    assert_eq!(job(json!({"parallelism": 4}), suspended), json!(["Suspended", "0/1 of 4", ""]));
    let failed = json!({"conditions": [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]});
    assert_eq!(job(json!({}), failed)[0], "Failed");
    let met = json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]});
    assert_eq!(job(json!({}), met)[0], "SuccessCriteriaMet");
}

#[test]
fn cron_jobs_show_when_they_ran() {
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}});
    let object = json!({
        "spec": {"schedule": "@hourly", "timeZone": "Etc/UTC", "suspend": false, "jobTemplate": template},
        "status": {"active": [{}, {}], "lastScheduleTime": "2026-01-01T00:59:00Z"}});
    let shown = cells("batch", "CronJob", object);
    assert_eq!(shown, json!(["@hourly", "Etc/UTC", "False", 2, "60s", "a", "i", "<none>"]));
}

#[test]
fn budgets_show_the_bound_they_have() {
    let object = json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}});
    assert_eq!(cells("policy", "PodDisruptionBudget", object), json!(["50%", "N/A", 2]));
    let object = json!({"spec": {"maxUnavailable": 1}});
    assert_eq!(cells("policy", "PodDisruptionBudget", object), json!(["N/A", "1", 0]));
}

#[test]
fn autoscalers_show_measured_and_wanted() {
    let targets = |metrics: Value, current: Value| {
        let object =
            json!({"spec": {"metrics": metrics, "maxReplicas": 9}, "status": {"currentMetrics": current}});
        cells("autoscaling", "HorizontalPodAutoscaler", object)[1].clone()
    };
    assert_eq!(targets(json!([]), json!([])), "<none>");
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
    assert_eq!(targets(json!([cpu]), json!([])), "cpu: <unknown>/80%");
    let now = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}});
    assert_eq!(targets(json!([cpu]), json!([now])), "cpu: 12%/80%");
    let auto = json!({"type": "Resource", "resource": {"name": "cpu", "target": {}}});
    assert_eq!(targets(json!([auto]), json!([])), "cpu: <unknown>/<auto>");
    let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
    let pods_now = json!({"pods": {"current": {"averageValue": "5500m"}}});
    assert_eq!(targets(json!([pods]), json!([pods_now])), "5500m/10");
    let external = json!({"type": "External", "external": {"target": {"averageValue": "3"}}});
    assert_eq!(targets(json!([external]), json!([])), "<unknown>/3 (avg)");
    let object = json!({"type": "Object", "object": {"target": {"value": "7"}}});
    let object_now = json!({"object": {"current": {"value": "2"}}});
    assert_eq!(targets(json!([object]), json!([object_now])), "2/7");
    let odd = json!({"type": "Odd"});
    let many = json!([cpu, odd, cpu, cpu]);
    assert_eq!(targets(many, json!([])), "cpu: <unknown>/80%, <unknown type> + 2 more...");
}

#[test]
fn version_1_of_an_autoscaler_shows_the_same_targets() {
    let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 5,
            "targetCPUUtilizationPercentage": 60},
        "status": {"currentReplicas": 3, "currentCPUUtilizationPercentage": 20}});
    let shown = cells("autoscaling", "HorizontalPodAutoscaler", v1);
    assert_eq!(shown, json!(["Deployment/d", "cpu: 20%/60%", "2", 5, 3]));
}

#[test]
fn services_show_how_to_reach_them() {
    let shown = |spec: Value, status: Value| cells("", "Service", json!({"spec": spec, "status": status}));
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
    let node_port =
        json!({"type": "NodePort", "clusterIPs": ["10.0.0.1"], "ports": ports, "selector": {"a": "b"}});
    let expected = json!(["NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "a=b"]);
    assert_eq!(shown(node_port, json!({})), expected);
    let balanced = |ingress: Value, external: Value| {
        let spec = json!({"type": "LoadBalancer", "externalIPs": external});
        shown(spec, json!({"loadBalancer": {"ingress": ingress}}))[2].clone()
    };
    assert_eq!(balanced(json!([]), json!([])), "<pending>");
    let points =
        json!([{"hostname": "z.a-very-long-name.example.test"}, {"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}]);
    assert_eq!(balanced(points.clone(), json!([])), "1.2.3.4,z.a-very-long-name.example.test");
    assert_eq!(balanced(points, json!(["9.9.9.9"])), "1.2.3.4,z.a-very-long-name.example.test,9.9.9.9");
    let external = json!({"type": "ExternalName", "externalName": "e.test"});
    assert_eq!(shown(external, json!({})), json!(["ExternalName", "<none>", "e.test", "<none>", "<none>"]));
}

#[test]
fn ingresses_show_the_first_hosts() {
    let hosts = |hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        cells("networking.k8s.io", "Ingress", json!({"spec": {"rules": rules}}))[1].clone()
    };
    assert_eq!(hosts(&[]), "*");
    assert_eq!(hosts(&["", "a"]), "a");
    assert_eq!(hosts(&["a", "b", "c"]), "a,b,c");
    assert_eq!(hosts(&["a", "b", "c", "d", "e"]), "a,b,c + 2 more...");
    let parameters = json!({"kind": "K", "apiGroup": "g.test", "name": "n"});
    let class = json!({"spec": {"controller": "c.test/x", "parameters": parameters}});
    assert_eq!(cells("networking.k8s.io", "IngressClass", class), json!(["c.test/x", "K.g.test/n"]));
}

#[test]
fn policies_and_addresses_show_what_they_are_about() {
    assert_eq!(
        cells("networking.k8s.io", "NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        json!(["<none>"])
    );
    let parent = json!({"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"});
    let address = json!({"spec": {"parentRef": parent}});
    assert_eq!(cells("networking.k8s.io", "IPAddress", address), json!(["services/default/kubernetes"]));
    let range = json!({"spec": {"cidrs": ["10.96.0.0/12", "fd00::/108"]}});
    assert_eq!(cells("networking.k8s.io", "ServiceCIDR", range), json!(["10.96.0.0/12,fd00::/108"]));
}

#[test]
fn endpoints_are_counted_from_the_fourth_on() {
    let shown = |subsets: Value| cells("", "Endpoints", json!({"subsets": subsets}))[0].clone();
    assert_eq!(shown(json!([])), "<none>");
    let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "fd::1"}]);
    assert_eq!(shown(json!([{"addresses": addresses}])), "10.0.0.1,fd::1");
    let subset = json!({"addresses": addresses, "ports": [{"port": 80}, {"port": 443}]});
    assert_eq!(shown(json!([subset])), "10.0.0.1:80,[fd::1]:80,10.0.0.1:443 + 1 more...");
    let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}, {}]});
    assert_eq!(cells("discovery.k8s.io", "EndpointSlice", slice), json!(["IPv4", "80,x,*", "<unset>"]));
}

#[test]
fn nodes_show_state_and_roles() {
    let node = json!({
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux"}}});
    let shown = cells("", "Node", node);
    assert_eq!(
        shown,
        json!([
            "NotReady,SchedulingDisabled",
            "edge,worker",
            "v1.36.4",
            "10.0.0.1",
            "<none>",
            "Linux",
            "<unknown>",
            "<unknown>"
        ])
    );
    assert_eq!(cells("", "Node", json!({}))[0], "Unknown");
}

#[test]
fn signing_requests_show_what_became_of_them() {
    let shown = |status: Value| {
        let spec = json!({"signerName": "s.test/x", "username": "u", "expirationSeconds": 3600});
        cells("certificates.k8s.io", "CertificateSigningRequest", json!({"spec": spec, "status": status}))
    };
    assert_eq!(shown(json!({})), json!(["s.test/x", "u", "60m", "Pending"]));
    let issued = json!({"certificate": "eA==", "conditions": [{"type": "Approved", "status": "True"}]});
    assert_eq!(shown(issued)[3], "Approved,Issued");
    let denied = json!({"conditions": [{"type": "Denied"}, {"type": "Failed"}]});
    assert_eq!(shown(denied)[3], "Denied,Failed");
}

#[test]
fn cluster_kinds_show_what_matters() {
    let local =
        json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}});
    assert_eq!(cells("apiregistration.k8s.io", "APIService", local), json!(["Local", "True"]));
    let remote = json!({"spec": {"service": {"namespace": "n", "name": "s"}},
        "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}});
    assert_eq!(
        cells("apiregistration.k8s.io", "APIService", remote),
        json!(["n/s", "False (MissingEndpoints)"])
    );
    let class = json!({"value": 7, "preemptionPolicy": "Never"});
    assert_eq!(cells("scheduling.k8s.io", "PriorityClass", class), json!([7, false, "Never"]));
    assert_eq!(cells("", "Namespace", json!({"status": {"phase": "Active"}})), json!(["Active"]));
    assert_eq!(
        cells("coordination.k8s.io", "Lease", json!({"spec": {"holderIdentity": "me"}})),
        json!(["me"])
    );
    assert_eq!(cells("node.k8s.io", "RuntimeClass", json!({"handler": "runc"})), json!(["runc"]));
}

#[test]
fn config_is_counted_not_shown() {
    let map = json!({"data": {"a": "1"}, "binaryData": {"b": "", "c": ""}});
    assert_eq!(cells("", "ConfigMap", map), json!([3]));
    assert_eq!(cells("", "Secret", json!({"type": "Opaque", "data": {"a": "MQ=="}})), json!(["Opaque", 1]));
    assert_eq!(names("", "ServiceAccount", true), ["Name", "Age"]);
    let hard = json!({"pods": "10", "limits.cpu": "2", "cpu": "1"});
    let quota = json!({"status": {"hard": hard, "used": {"pods": "3"}}});
    assert_eq!(cells("", "ResourceQuota", quota), json!(["cpu: 0/1, pods: 3/10", "limits.cpu: 0/2"]));
}

#[test]
fn events_read_the_same_in_both_groups() {
    let core = json!({
        "type": "Warning", "reason": "Why", "message": " text\n", "count": 4,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.x"},
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:59:00Z"});
    let events = json!({
        "type": "Warning", "reason": "Why", "note": " text\n", "deprecatedCount": 4,
        "regarding": {"kind": "Pod", "name": "p", "fieldPath": "spec.x"},
        "deprecatedSource": {"component": "c", "host": "h"},
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:59:00Z"});
    let expected = json!(["60s", "Warning", "Why", "pod/p", "spec.x", "c, h", "text", "60m", 4]);
    assert_eq!(cells("", "Event", core), expected);
    assert_eq!(cells("events.k8s.io", "Event", events), expected);
}

#[test]
fn new_style_events_count_in_series() {
    let once = json!({"eventTime": "2026-01-01T00:30:00.000000Z", "reportingComponent": "r", "reportingInstance": "i"});
    let shown = cells("", "Event", once.clone());
    assert_eq!(json!([shown[0], shown[5], shown[7], shown[8]]), json!(["30m", "r, i", "30m", 1]));
    let mut series = once;
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-01-01T00:59:30.000000Z"});
    let shown = cells("", "Event", series);
    assert_eq!(json!([shown[0], shown[7], shown[8]]), json!(["30s", "30m", 9]));
}

#[test]
fn volumes_and_claims_show_their_binding() {
    let volume = json!({
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
            "storageClassName": "slow", "volumeMode": "Block"},
        "status": {"phase": "Bound"}});
    let expected = json!(["1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "slow", "<unset>", "", "Block"]);
    assert_eq!(cells("", "PersistentVolume", volume), expected);
    let mut claim = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "new"},
        "status": {"phase": "Pending", "accessModes": ["ReadWriteOncePod"], "capacity": {"storage": "2Gi"}}});
    let expected = json!(["Pending", "", "", "", "old", "<unset>", "<unset>"]);
    assert_eq!(cells("", "PersistentVolumeClaim", claim.clone()), expected);
    claim["spec"]["volumeName"] = json!("v");
    claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let expected = json!(["Terminating", "v", "2Gi", "RWOP", "old", "<unset>", "<unset>"]);
    assert_eq!(cells("", "PersistentVolumeClaim", claim), expected);
}

#[test]
fn the_default_storage_class_is_marked() {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"metadata": {"name": "s", "annotations": annotations}, "provisioner": "p"});
    let table = table("storage.k8s.io", "StorageClass", &[class], json!({}), options(Include::None), NOW);
    let expected = json!(["s (default)", "p", "Delete", "Immediate", false, "<unknown>"]);
    assert_eq!(table["rows"][0]["cells"], expected);
}

#[test]
fn drivers_and_attachments_show_their_settings() {
    let driver = json!({"spec": {"attachRequired": false, "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
        "volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
    let expected = json!([false, false, false, "a,b", false, "Persistent,Ephemeral"]);
    assert_eq!(cells("storage.k8s.io", "CSIDriver", driver), expected);
    let empty = json!([true, false, false, "<unset>", false, "<none>"]);
    assert_eq!(cells("storage.k8s.io", "CSIDriver", json!({})), empty);
    assert_eq!(cells("storage.k8s.io", "CSINode", json!({"spec": {"drivers": [{}]}})), json!([1]));
    let capacity = json!({"storageClassName": "s"});
    assert_eq!(cells("storage.k8s.io", "CSIStorageCapacity", capacity), json!(["s", "<unset>"]));
    let attachment = json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": true}});
    assert_eq!(cells("storage.k8s.io", "VolumeAttachment", attachment), json!(["d", "v", "n", true]));
}

#[test]
fn bindings_show_subjects_by_kind() {
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
        {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "User", "name": "v"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]});
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        let shown = cells("rbac.authorization.k8s.io", kind, binding.clone());
        assert_eq!(shown, json!(["ClusterRole/view", "u, v", "g", "n/s"]));
    }
    assert_eq!(names("rbac.authorization.k8s.io", "RoleBinding", false), ["Name", "Role", "Age"]);
    assert_eq!(names("rbac.authorization.k8s.io", "Role", true), ["Name", "Created At"]);
}

#[test]
fn admission_kinds_show_what_they_hold() {
    const GROUP: &str = "admissionregistration.k8s.io";
    let hooks = json!({"webhooks": [{}, {}]});
    assert_eq!(cells(GROUP, "MutatingWebhookConfiguration", hooks), json!([2]));
    let policy =
        json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    assert_eq!(cells(GROUP, "ValidatingAdmissionPolicy", policy), json!([1, "v1/ConfigMap"]));
    assert_eq!(cells(GROUP, "MutatingAdmissionPolicy", json!({})), json!([0, "<unset>"]));
    let reference = |reference: Value| {
        let binding = json!({"spec": {"policyName": "p", "paramRef": reference}});
        cells(GROUP, "ValidatingAdmissionPolicyBinding", binding)[1].clone()
    };
    assert_eq!(reference(json!(null)), "<unset>");
    assert_eq!(reference(json!({"name": "x"})), "*/x");
    assert_eq!(reference(json!({"name": "x", "namespace": "n"})), "n/x");
    let expression = json!({"key": "k", "operator": "In", "values": ["a", "b"]});
    assert_eq!(
        reference(json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [expression]}})),
        "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:k,Operator:In,Values:[a b],},},}"
    );
}

#[test]
fn flow_schemas_come_in_the_order_they_are_tried() {
    let schema = |name: &str, precedence: i64| json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}});
    let schemas = [schema("a", 9), schema("c", 1), schema("b", 1)];
    let group = "flowcontrol.apiserver.k8s.io";
    let table = table(group, "FlowSchema", &schemas, json!({}), options(Include::None), NOW);
    let order: Vec<&Value> = table["rows"].as_array().unwrap().iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(order, ["b", "c", "a"]);
    assert_eq!(table["rows"][0]["cells"], json!(["b", "", 1, "<none>", "<unknown>", "?"]));
}

#[test]
fn priority_levels_show_their_limits() {
    let group = "flowcontrol.apiserver.k8s.io";
    let queuing = json!({"queues": 8, "handSize": 2, "queueLengthLimit": 50});
    let limited = json!({"nominalConcurrencyShares": 30, "limitResponse": {"queuing": queuing}});
    let level = json!({"spec": {"type": "Limited", "limited": limited}});
    assert_eq!(cells(group, "PriorityLevelConfiguration", level), json!(["Limited", 30, 8, 2, 50]));
    let exempt = json!({"spec": {"type": "Exempt"}});
    let expected = json!(["Exempt", "<none>", "<none>", "<none>", "<none>"]);
    assert_eq!(cells(group, "PriorityLevelConfiguration", exempt), expected);
}

#[test]
fn claims_to_devices_show_their_state() {
    let state = |object: Value| cells("resource.k8s.io", "ResourceClaim", object)[0].clone();
    assert_eq!(state(json!({})), "pending");
    assert_eq!(state(json!({"status": {"allocation": {}, "reservedFor": [{}]}})), "allocated,reserved");
    let deleted =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"allocation": {}}});
    assert_eq!(state(deleted), "deleted,allocated");
    let slice = json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}});
    assert_eq!(cells("resource.k8s.io", "ResourceSlice", slice), json!(["n", "d", "p"]));
}

#[test]
fn rows_carry_as_much_of_the_object_as_asked() {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let carried = |include: Include| {
        let table = table("", "ConfigMap", std::slice::from_ref(&object), json!({}), options(include), NOW);
        table["rows"][0]["object"].clone()
    };
    assert_eq!(carried(Include::None), Value::Null);
    assert_eq!(carried(Include::Object), object);
    let metadata =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}});
    assert_eq!(carried(Include::Metadata), metadata);
    assert_eq!(Include::parse(None).unwrap(), Include::Metadata);
    assert_eq!(Include::parse(Some("None")).unwrap(), Include::None);
    assert!(Include::parse(Some("none")).unwrap_err().message.contains("\"none\""));
}

#[test]
fn later_tables_of_a_watch_do_not_repeat_the_columns() {
    let later = Options { version: "v1beta1", include: Include::None, headers: false };
    let table = table("", "Secret", &[json!({})], json!({"resourceVersion": "7"}), later, NOW);
    assert_eq!(table["columnDefinitions"], Value::Null);
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(table["metadata"]["resourceVersion"], "7");
}

#[test]
fn every_kind_has_one_column_that_names_it_and_describes_all() {
    for resource in Registry::builtin().iter() {
        let columns = columns(&resource.group, &resource.kind);
        assert!(columns.iter().any(|c| c.name == "Name" && c.format == "name"), "{}", resource.kind);
        assert!(columns.iter().all(|c| !c.description.is_empty() && c.priority <= 1), "{}", resource.kind);
    }
}

/// Anything at all, under names that cells look for.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9:é,/-]{0,6}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "labels",
        "name",
        "phase",
        "conditions",
        "type",
        "containers",
        "template",
        "initContainerStatuses",
        "containerStatuses",
        "state",
        "terminated",
        "restartCount",
        "exitCode",
        "lastState",
        "finishedAt",
        "selector",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "metrics",
        "resource",
        "target",
        "averageUtilization",
        "ports",
        "port",
        "subsets",
        "addresses",
        "ip",
        "rules",
        "host",
        "subjects",
        "kind",
        "hard",
        "used",
        "series",
        "count",
        "creationTimestamp",
        "startTime",
        "completionTime",
        "paramRef",
        "expirationSeconds",
        "matchingPrecedence",
        "ownerReferences",
        "accessModes",
        "endpoints",
        "apiVersion",
    ]);
    leaf.prop_recursive(5, 96, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 0..8)
                .prop_map(|entries| entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_is_too_odd_to_be_shown(object in anything(), now in any::<i64>()) {
        for resource in Registry::builtin().iter() {
            let objects = std::slice::from_ref(&object);
            let table = table(
                &resource.group, &resource.kind, objects, Value::Null, options(Include::None), Timestamp(now));
            let cells = table["rows"][0]["cells"].as_array().map(Vec::len);
            prop_assert_eq!(cells, table["columnDefinitions"].as_array().map(Vec::len));
        }
    }
}
