use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ApplicationSpec;

pub(crate) fn app(spec: &Value) -> Application {
    let spec: ApplicationSpec = serde_json::from_value(spec.clone()).unwrap();
    let mut app = Application::new("web", spec);
    app.metadata.namespace = Some("default".to_owned());
    app.metadata.uid = Some("uid-1".to_owned());
    app
}

/// The seed's example.
fn example() -> Value {
    json!({
        "replicas": 3, "image": "nginx:latest", "port": 80,
        "environment": [{"name": "ENV", "value": "production"}],
        "resources": {"requests": {"memory": "64Mi", "cpu": "250m"}, "limits": {"memory": "128Mi", "cpu": "500m"}},
        "healthCheck": {
            "livenessProbe": {"httpGet": {"path": "/health", "port": 80}, "initialDelaySeconds": 30, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}, "initialDelaySeconds": 5, "periodSeconds": 5}
        },
        "scaling": {"minReplicas": 2, "maxReplicas": 10,
            "targetCPUUtilizationPercentage": 70, "targetMemoryUtilizationPercentage": 80},
        "storage": {"persistentVolumeClaims": [{"name": "app-data", "size": "10Gi", "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast-ssd"}]},
        "network": {"serviceType": "LoadBalancer", "loadBalancer": {"sourceRanges": ["10.0.0.0/8"]}},
        "security": {"serviceAccount": "app-service-account", "securityContext": {"runAsNonRoot": true, "runAsUser": 1000},
            "imagePullSecrets": [{"name": "registry"}]}
    })
}

#[test]
fn every_field_of_the_example_reaches_a_child() {
    let app = app(&example());
    let (template, revision) = template(&app);
    let deployment = deployment(&app, template, ReplicasFrom::Application(3));
    let d = serde_json::to_value(&deployment).unwrap();
    let pod = &d["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(d["spec"]["replicas"], 3);
    assert_eq!(d["spec"]["template"]["metadata"]["labels"]["apps.example.com/revision"], revision);
    assert_eq!(container["image"], "nginx:latest");
    assert_eq!(container["ports"][0], json!({"containerPort": 80, "name": "http", "protocol": "TCP"}));
    assert_eq!(container["env"][0], json!({"name": "ENV", "value": "production"}));
    assert_eq!(container["resources"]["limits"]["memory"], "128Mi");
    assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/health", "port": 80}));
    assert_eq!(container["readinessProbe"]["periodSeconds"], 5);
    assert_eq!(container["volumeMounts"][0], json!({"name": "app-data", "mountPath": "/data/app-data"}));
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "web-app-data");
    assert_eq!(pod["serviceAccountName"], "app-service-account");
    assert_eq!(pod["securityContext"], json!({"runAsNonRoot": true, "runAsUser": 1000}));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));

    let service = serde_json::to_value(service(&app)).unwrap();
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["loadBalancerSourceRanges"], json!(["10.0.0.0/8"]));
    assert_eq!(service["spec"]["ports"][0]["port"], 80);

    let autoscaler = serde_json::to_value(autoscaler(&app)).unwrap();
    assert_eq!(
        (&autoscaler["spec"]["minReplicas"], &autoscaler["spec"]["maxReplicas"]),
        (&json!(2), &json!(10))
    );
    let utilization = |index: usize| autoscaler["spec"]["metrics"][index]["resource"].clone();
    assert_eq!(
        utilization(0),
        json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}})
    );
    assert_eq!(
        utilization(1),
        json!({"name": "memory", "target": {"type": "Utilization", "averageUtilization": 80}})
    );

    let claim = serde_json::to_value(claim(&app, &app.spec.claims()[0], None)).unwrap();
    assert_eq!(claim["spec"]["storageClassName"], "fast-ssd");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "10Gi");
    assert_eq!(service_account(&app).unwrap().metadata.name.as_deref(), Some("app-service-account"));
    for labels in [&d["metadata"]["labels"], &service["metadata"]["labels"], &claim["metadata"]["labels"]] {
        assert_eq!(labels["app"], "web", "kubectl get all -l app=web shows it");
    }
}

#[test]
fn what_is_not_asked_for_is_not_built() {
    let app = app(&json!({"image": "worker"}));
    assert!(service(&app).is_none() && autoscaler(&app).is_none() && budget(&app).is_none());
    assert!(ingress(&app).is_none() && network_policy(&app).is_none() && config_map(&app).is_none());
    assert!(service_account(&app).is_none());
    assert_eq!(url(&app, None), None);
    let suspended = tests::app(&json!({"image": "a", "replicas": 0, "scaling": {"maxReplicas": 3}}));
    assert!(autoscaler(&suspended).is_none(), "an autoscaler would bring the pods back");
}

#[test]
fn replicas_of_the_autoscaler_are_left_out() {
    let app = app(&example());
    let built = deployment(&app, template(&app).0, ReplicasFrom::Autoscaler);
    assert_eq!(built.spec.as_ref().unwrap().replicas, None);
    assert!(replicas_from(&built));
    assert!(!replicas_from(&deployment(&app, template(&app).0, ReplicasFrom::Application(1))));
}

#[test]
fn a_volume_for_one_node_is_let_go_before_it_is_taken() {
    let strategy = |spec: Value| deployment_of(&spec)["spec"]["strategy"].clone();
    let claim = |modes: Value| json!({"image": "a", "storage": {"persistentVolumeClaims": [{"name": "d", "size": "1Gi", "accessModes": modes}]}});
    let careful = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    assert_eq!(strategy(claim(json!(["ReadWriteOnce"]))), careful);
    let usual =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    assert_eq!(strategy(claim(json!(["ReadWriteMany"]))), usual);
    let asked = json!({"image": "a", "strategy": {"type": "Recreate"}});
    assert_eq!(strategy(asked), json!({"type": "Recreate"}));
}

fn deployment_of(spec: &Value) -> Value {
    let app = app(spec);
    serde_json::to_value(deployment(&app, template(&app).0, ReplicasFrom::Application(1))).unwrap()
}

#[test]
fn probes_without_a_port_use_the_first() {
    let spec = json!({"image": "a", "ports": [{"name": "web", "port": 8080}, {"name": "admin", "port": 9090}],
        "healthCheck": {"readinessProbe": {"httpGet": {"path": "/"}}, "livenessProbe": {"tcpSocket": {"port": "admin"}}}});
    let container = deployment_of(&spec)["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 8080);
    assert_eq!(container["livenessProbe"]["tcpSocket"]["port"], "admin");
}

#[test]
fn other_files_are_another_template_and_another_config_map() {
    let of = |content: &str| {
        app(&json!({"image": "a", "configFiles": [
        {"path": "/etc/a/conf", "content": content}, {"path": "/etc/b/conf", "content": ""}]}))
    };
    let (one, two) = (of("1"), of("2"));
    assert_ne!(config_map_name(&one), config_map_name(&two));
    assert_ne!(template(&one).1, template(&two).1);
    let map = config_map(&one).unwrap();
    assert_eq!(map.data.unwrap().len(), 2, "files of one name in two folders");
    assert_eq!(config_maps_of(&template(&one).0).collect::<Vec<_>>(), [config_map_name(&one).unwrap()]);
}

#[test]
fn a_kept_volume_stays_as_large_as_it_is() {
    let app =
        app(&json!({"image": "a", "storage": {"persistentVolumeClaims": [{"name": "d", "size": "1Gi"}]}}));
    let entry = &app.spec.claims()[0];
    let mut larger = app.clone();
    larger.spec.storage.as_mut().unwrap().persistent_volume_claims[0].size.0 = "3072Mi".to_owned();
    let live = claim(&larger, &larger.spec.claims()[0], None);
    let size = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
        claim.spec.clone().unwrap().resources.unwrap().requests.unwrap()["storage"].0.clone()
    };
    assert_eq!(size(&claim(&app, entry, Some(&live))), "3Gi");
    assert_eq!(size(&claim(&larger, &larger.spec.claims()[0], Some(&claim(&app, entry, None)))), "3Gi");
}

#[test]
fn where_it_is_reached() {
    let at = |spec: Value| url(&app(&spec), None).unwrap();
    assert_eq!(at(json!({"image": "a", "port": 80})), "http://web.default.svc");
    assert_eq!(at(json!({"image": "a", "port": 8080})), "http://web.default.svc:8080");
    let ingress = json!({"image": "a", "port": 80, "network": {"ingress": {"host": "a.example", "tlsSecretName": "s"}}});
    assert_eq!(at(ingress), "https://a.example/");
    let balanced = app(&json!({"image": "a", "port": 81, "network": {"serviceType": "LoadBalancer"}}));
    let live =
        serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}))
            .unwrap();
    assert_eq!(url(&balanced, Some(&live)).unwrap(), "http://192.0.2.1:81");
}

proptest! {
    /// The same specification gives the same bytes, whatever was built before; and it survives a trip through the API.
    #[test]
    fn the_same_specification_gives_the_same_bytes(
        replicas in 0..5_i32,
        image in "[a-z]{1,8}(:[a-z0-9]{1,4})?",
        port in proptest::option::of(1..65_535_i32),
        labels in proptest::collection::btree_map("[a-z]{2,5}", "[a-z]{0,5}", 0..4),
        files in proptest::collection::btree_map("/[a-z]{1,5}/[a-z]{1,5}", ".{0,8}", 0..3),
    ) {
        let files: Vec<Value> = files.iter().map(|(path, content)| json!({"path": path, "content": content})).collect();
        let spec = json!({"replicas": replicas, "image": image, "port": port, "podLabels": labels, "configFiles": files});
        let one = app(&spec);
        let two: Application = serde_json::from_value(serde_json::to_value(&one).unwrap()).unwrap();
        let bytes = |app: &Application| {
            let built = deployment(app, template(app).0, ReplicasFrom::Application(app.spec.replicas));
            serde_json::to_vec(&(built, service(app), config_map(app))).unwrap()
        };
        prop_assert_eq!(bytes(&one), bytes(&two));
        let mut other = one.clone();
        other.spec.replicas += 1;
        prop_assert_eq!(template(&one).1, template(&other).1, "replicas are no part of the template");
        other.spec.image.push('x');
        prop_assert_ne!(template(&one).1, template(&other).1);
    }
}
