//! Recorded answers of a real server about autoscalers.
#![allow(clippy::needless_pass_by_value, reason = "literals are easier to read where they are used")]

use super::*;

fn v2(spec: Value) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec})
}

fn target() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"})
}

#[test]
fn a_v2_object_without_metrics_gets_eighty_percent_cpu_and_shows_it_in_v1() {
    let mut h = v2(json!({"scaleTargetRef": target(), "maxReplicas": 5}));
    default(&mut h);
    let metric = json!({"resource": {"name": "cpu", "target": {"averageUtilization": 80, "type": "Utilization"}}, "type": "Resource"});
    let expected =
        json!({"maxReplicas": 5, "minReplicas": 1, "scaleTargetRef": target(), "metrics": [metric]});
    assert_eq!(h["spec"], expected);
    v2_to_v1(&mut h);
    assert_eq!(
        h["spec"],
        json!({"maxReplicas": 5, "minReplicas": 1, "scaleTargetRef": target(), "targetCPUUtilizationPercentage": 80})
    );
    assert_eq!(h["metadata"], json!({"name": "h"}));
    v1_to_v2(&mut h);
    assert_eq!(h["spec"], expected);
}

#[test]
fn what_v1_cannot_say_travels_in_annotations_and_comes_back() {
    let mut h = v2(json!({
        "scaleTargetRef": target(),
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
            {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "3"}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    }));
    h["status"] = json!({
        "currentReplicas": 1, "desiredReplicas": 2,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "7m"}}}],
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    });
    default(&mut h);
    let before = h.clone();
    v2_to_v1(&mut h);
    assert_eq!(h["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(
        h["status"],
        json!({"currentReplicas": 1, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 7})
    );
    let annotations = h["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.len(), 4);
    assert!(
        annotations["autoscaling.alpha.kubernetes.io/behavior"].as_str().unwrap().contains("\"ScaleUp\"")
    );
    v1_to_v2(&mut h);
    assert_eq!(h, before);
}

#[test]
fn the_causes_of_a_bad_autoscaler_are_the_real_ones() {
    let mut h = v2(json!({"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0, "minReplicas": 7}));
    default(&mut h);
    let mut errors = Errors::new();
    validate::validate(&h, &mut errors);
    assert_eq!(
        errors.to_string(),
        "[spec.maxReplicas: Required value: must be set and greater than 0, spec.maxReplicas: Invalid value: 0: \
         must be greater than or equal to `minReplicas`, spec.scaleTargetRef.kind: Required value, \
         spec.scaleTargetRef.name: Required value, spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion \
         must specify API group]"
    );
}
