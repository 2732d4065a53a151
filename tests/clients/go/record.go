// Uses the typed clients of client-go on the cluster of KUBECONFIG, and writes down what they send.
//
// The requests become crates/apiserver/tests/go_clients/requests.json. Paths, headers and bodies are what client-go
// sent, byte for byte. What differs from run to run (uids, resource versions) is listed beside a body, padded to a fixed
// length, so that the test can put in its own.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Request is one line of the recording.
type Request struct {
	Name        string        `json:"name"`
	Method      string        `json:"method"`
	Path        string        `json:"path"`
	ContentType string        `json:"contentType,omitempty"`
	Accept      string        `json:"accept,omitempty"`
	Body        string        `json:"body,omitempty"`
	Replace     []Replacement `json:"replace,omitempty"`
}

// Replacement is text in the body that stands for a field of an object as it is now.
type Replacement struct {
	Text  string `json:"text"`
	Field string `json:"field"`
	Of    string `json:"of"`
}

const namespace = "go"

var (
	ctx      = context.Background()
	name     string
	replace  []Replacement
	recorded []Request
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	upstream, err := url.Parse(config.Host)
	must(err)
	transport, err := rest.TransportFor(config)
	must(err)
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = transport
	proxy.FlushInterval = -1
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		record(r, body)
		proxy.ServeHTTP(w, r)
	}))
	client, err := kubernetes.NewForConfig(&rest.Config{Host: listening.URL})
	must(err)

	core(client)
	pods(client)
	workloads(client)
	others(client)
	access(client)
	deletes(client)
	name = ""
	informer(client)

	out, err := json.MarshalIndent(recorded, "", " ")
	must(err)
	must(os.WriteFile(os.Args[1], append(out, '\n'), 0o644))
	fmt.Println(len(recorded), "requests")
}

func record(r *http.Request, body []byte) {
	if name == "" {
		return
	}
	recorded = append(recorded, Request{
		Name: name, Method: r.Method, Path: r.URL.RequestURI(),
		ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"),
		Body: base64.StdEncoding.EncodeToString(body), Replace: replace,
	})
	name, replace = "", nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// as names the next request.
func as(next string) { name = next }

// done checks the answer to a request.
func done[T any](answer T, err error) T {
	must(err)
	return answer
}

func assert(holds bool, what string) {
	if !holds {
		panic(what)
	}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: namespace} }

// padded makes a resource version as long as any other, and notes that it and the uid are this object's. The time of
// creation is left out, which servers allow: it has no fixed length.
func padded(object metav1.Object, of string) {
	object.SetCreationTimestamp(metav1.Time{})
	text := strings.Repeat("0", 12-len(object.GetResourceVersion())) + object.GetResourceVersion()
	object.SetResourceVersion(text)
	replace = append(replace, Replacement{text, "resourceVersion", of})
	uid(object, of)
}

func uid(object metav1.Object, of string) *types.UID {
	value := object.GetUID()
	replace = append(replace, Replacement{string(value), "uid", of})
	return &value
}

func core(client *kubernetes.Clientset) {
	api := client.CoreV1()
	as("namespace create")
	done(api.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))

	maps := api.ConfigMaps(namespace)
	as("configmap create")
	made := done(maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"n": "é"}},
		Data:       map[string]string{"k": "1"}, BinaryData: map[string][]byte{"b": {0, 255}},
	}, metav1.CreateOptions{FieldManager: "go"}))
	assert(string(made.BinaryData["b"]) == "\x00\xff" && made.Annotations["n"] == "é", "configmap comes back")
	made.Data["k"] = "2"
	padded(made, "/api/v1/namespaces/go/configmaps/a")
	as("configmap update")
	done(maps.Update(ctx, made, metav1.UpdateOptions{}))
	as("configmap get")
	done(maps.Get(ctx, "a", metav1.GetOptions{}))
	as("configmap list")
	list := done(maps.List(ctx, metav1.ListOptions{LabelSelector: "l=1", Limit: 500}))
	assert(len(list.Items) == 1 && list.Items[0].Data["k"] == "2", "list")
	as("configmap patch json")
	done(maps.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"add","path":"/data/j","value":"x"}]`), metav1.PatchOptions{}))
	as("configmap patch merge")
	done(maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"m":"y"}}`), metav1.PatchOptions{}))
	as("configmap patch strategic")
	done(maps.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"data":{"s":"z"}}`), metav1.PatchOptions{}))
	as("configmap apply")
	done(maps.Apply(ctx, applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"k": "v"}), metav1.ApplyOptions{FieldManager: "go", Force: true}))

	as("secret create")
	secret := done(api.Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: meta("s"), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("v")}, StringData: map[string]string{"t": "text"},
	}, metav1.CreateOptions{}))
	assert(string(secret.Data["t"]) == "text", "secret")
	as("serviceaccount create")
	done(api.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta("default")}, metav1.CreateOptions{}))
	seconds := int64(3600)
	as("token request")
	token := done(api.ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"https://kubernetes.default.svc"}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{}))
	assert(token.Status.Token != "" && !token.Status.ExpirationTimestamp.IsZero(), "token")
	as("service create")
	service := done(api.Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: meta("web"),
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}, {Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)},
		}},
	}, metav1.CreateOptions{}))
	assert(service.Spec.ClusterIP != "" && service.Spec.Ports[0].TargetPort.StrVal == "web", "service")
	as("persistentvolumeclaim create")
	done(api.PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: meta("data"),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{}))
	as("resourcequota create")
	done(api.ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: meta("quota"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("50")}},
	}, metav1.CreateOptions{}))

	as("node create")
	node := done(api.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "t", Value: "v", Effect: corev1.TaintEffectNoSchedule}},
	}}, metav1.CreateOptions{}))
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(1700000000, 0)}}
	padded(node, "/api/v1/nodes/n1")
	as("node update status")
	node = done(api.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}))
	assert(node.Status.Capacity.Cpu().String() == "4" && node.Spec.Taints[0].Key == "t", "node status")
	as("node patch status")
	done(api.Nodes().PatchStatus(ctx, "n1", []byte(`{"status":{"nodeInfo":{"kubeletVersion":"v1.36.0"}}}`)))

	reference := corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: namespace, Name: "a", UID: made.UID}
	as("event create")
	done(api.Events(namespace).CreateWithEventNamespaceWithContext(ctx, &corev1.Event{
		ObjectMeta: meta("a.1"), InvolvedObject: reference, Reason: "Tested", Message: "by a recorder", Type: "Normal", Count: 1,
		Source: corev1.EventSource{Component: "recorder"}, FirstTimestamp: metav1.Unix(1700000000, 0), LastTimestamp: metav1.Unix(1700000000, 0),
	}))
	as("event patch")
	done(api.Events(namespace).PatchWithEventNamespaceWithContext(ctx, &corev1.Event{ObjectMeta: meta("a.1")}, []byte(`{"count":2}`)))
	as("event create in events.k8s.io")
	done(client.EventsV1().Events(namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: meta("a.2"), EventTime: metav1.NewMicroTime(time.Unix(1700000000, 123456000)), ReportingController: "example.com/recorder",
		ReportingInstance: "recorder-1", Action: "Testing", Reason: "Tested", Regarding: reference, Note: "by a recorder", Type: "Normal",
	}, metav1.CreateOptions{}))
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "web", Image: "nginx:1.29",
				Env:   []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
				},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}},
			}},
			Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}},
		},
	}
}

func pods(client *kubernetes.Clientset) {
	api := client.CoreV1().Pods(namespace)
	template := podTemplate()
	as("pod create")
	pod := done(api.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: template.Labels}, Spec: template.Spec}, metav1.CreateOptions{}))
	assert(pod.Status.Phase == corev1.PodPending && pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds == 10, "pod defaults")
	as("pod bind")
	must(api.Bind(ctx, &corev1.Binding{ObjectMeta: meta("p"), Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{}))
	pod = done(api.Get(ctx, "p", metav1.GetOptions{}))
	assert(pod.Spec.NodeName == "n1", "bound")
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.PodIP = "10.0.0.7"
	padded(pod, "/api/v1/namespaces/go/pods/p")
	as("pod update status")
	pod = done(api.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
	assert(pod.Status.PodIP == "10.0.0.7", "pod status")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
	padded(pod, "/api/v1/namespaces/go/pods/p")
	as("pod update ephemeralcontainers")
	pod = done(api.UpdateEphemeralContainers(ctx, "p", pod, metav1.UpdateOptions{}))
	assert(len(pod.Spec.EphemeralContainers) == 1, "ephemeral containers")
	zero := int64(0)
	as("pod evict")
	must(api.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: meta("p"), DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &zero}}))
}

func workloads(client *kubernetes.Clientset) {
	apps := client.AppsV1()
	two, labels := int32(2), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	of := "/apis/apps/v1/namespaces/go/deployments/web"
	surge := intstr.FromString("50%")
	as("deployment create")
	made := done(apps.Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta("web"),
		Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: labels, Template: podTemplate(), Strategy: appsv1.DeploymentStrategy{
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge},
		}},
	}, metav1.CreateOptions{}))
	assert(made.Spec.Strategy.RollingUpdate.MaxUnavailable.StrVal == "25%", "deployment defaults")
	three := int32(3)
	made.Spec.Replicas = &three
	padded(made, of)
	as("deployment update")
	made = done(apps.Deployments(namespace).Update(ctx, made, metav1.UpdateOptions{}))
	made.Status.Replicas, made.Status.ObservedGeneration = 1, 2
	made.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "Waiting"}}
	padded(made, of)
	as("deployment update status")
	made = done(apps.Deployments(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}))
	assert(made.Status.Replicas == 1 && made.Generation == 2, "deployment status")
	as("deployment get scale")
	scale := done(apps.Deployments(namespace).GetScale(ctx, "web", metav1.GetOptions{}))
	assert(scale.Spec.Replicas == 3 && scale.Status.Selector == "app=web", "scale")
	as("deployment update scale")
	done(apps.Deployments(namespace).UpdateScale(ctx, "web", &autoscalingv1.Scale{ObjectMeta: meta("web"), Spec: autoscalingv1.ScaleSpec{Replicas: 5}}, metav1.UpdateOptions{}))
	as("statefulset create")
	done(apps.StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: &two, Selector: labels, Template: podTemplate(), ServiceName: "db"},
	}, metav1.CreateOptions{}))
	as("daemonset create")
	done(apps.DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta("agent"), Spec: appsv1.DaemonSetSpec{Selector: labels, Template: podTemplate()}}, metav1.CreateOptions{}))
	job := batchv1.JobSpec{Completions: &two, Template: podTemplate()}
	job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	as("job create")
	done(client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: meta("once"), Spec: job}, metav1.CreateOptions{}))
	as("cronjob create")
	done(client.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{
		ObjectMeta: meta("nightly"), Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}},
	}, metav1.CreateOptions{}))
	as("horizontalpodautoscaler create")
	percent := int32(80)
	done(client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta("web"),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 9,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			}}},
		},
	}, metav1.CreateOptions{}))
}

func others(client *kubernetes.Clientset) {
	leases := client.CoordinationV1().Leases(namespace)
	holder, seconds, now := "one", int32(15), metav1.NewMicroTime(time.Unix(1700000000, 123456000))
	as("lease create")
	lease := done(leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: meta("lock"), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{}))
	assert(lease.Spec.RenewTime.Equal(&now), "lease time")
	other := "two"
	lease.Spec.HolderIdentity = &other
	padded(lease, "/apis/coordination.k8s.io/v1/namespaces/go/leases/lock")
	as("lease update")
	done(leases.Update(ctx, lease, metav1.UpdateOptions{}))

	budget := intstr.FromInt32(1)
	as("poddisruptionbudget create")
	done(client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: meta("web"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &budget, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{}))
	prefix := networkingv1.PathTypePrefix
	as("ingress create")
	done(client.NetworkingV1().Ingresses(namespace).Create(ctx, &networkingv1.Ingress{
		ObjectMeta: meta("web"),
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
		}}}}},
	}, metav1.CreateOptions{}))
}

func access(client *kubernetes.Clientset) {
	as("role create")
	done(client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: meta("reader"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{}))
	as("rolebinding create")
	done(client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta("jane"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}},
	}, metav1.CreateOptions{}))
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}
	as("selfsubjectaccessreview create")
	self := done(client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}, metav1.CreateOptions{}))
	assert(self.Status.Allowed, "self review")
	as("subjectaccessreview create")
	jane := done(client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: attributes, Extra: map[string]authorizationv1.ExtraValue{"e": {"1", "2"}}},
	}, metav1.CreateOptions{}))
	assert(jane.Status.Allowed, "review")
	as("selfsubjectreview create")
	me := done(client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))
	assert(me.Status.UserInfo.Username != "", "who am I")
	as("tokenreview create")
	nobody := done(client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "nonsense"}}, metav1.CreateOptions{}))
	assert(!nobody.Status.Authenticated, "a wrong token")
}

func deletes(client *kubernetes.Clientset) {
	maps, of := client.CoreV1().ConfigMaps(namespace), "/api/v1/namespaces/go/configmaps/a"
	wrong := types.UID("00000000-0000-0000-0000-000000000000")
	as("configmap delete with another uid")
	err := maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	assert(err != nil && strings.Contains(err.Error(), "UID in the precondition"), fmt.Sprint(err))
	found := done(maps.Get(ctx, "a", metav1.GetOptions{}))
	zero, background := int64(0), metav1.DeletePropagationBackground
	as("configmap delete with its uid")
	must(maps.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero, PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: uid(found, of)}}))
	foreground := metav1.DeletePropagationForeground
	as("deployment delete in the foreground")
	must(client.AppsV1().Deployments(namespace).Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	as("configmap deletecollection")
	must(maps.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{FieldSelector: "metadata.name=applied"}))
	as("secret delete without options")
	must(client.CoreV1().Secrets(namespace).Delete(ctx, "s", metav1.DeleteOptions{}))
}

// informer checks that the shared informers of client-go follow the server; their requests are not recorded.
func informer(client *kubernetes.Clientset) {
	stop := make(chan struct{})
	defer close(stop)
	factory := informers.NewSharedInformerFactory(client, 0)
	kept := factory.Core().V1().ConfigMaps().Informer()
	seen := make(chan string, 100)
	_, err := kept.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen <- "add " + object.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, object any) { seen <- "update " + object.(*corev1.ConfigMap).Name },
		DeleteFunc: func(object any) { seen <- "delete " + object.(*corev1.ConfigMap).Name },
	})
	must(err)
	factory.Start(stop)
	assert(cache.WaitForCacheSync(stop, kept.HasSynced), "synced")
	maps := client.CoreV1().ConfigMaps("default")
	done(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{}))
	done(maps.Patch(ctx, "seen", types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{}))
	must(maps.Delete(ctx, "seen", metav1.DeleteOptions{}))
	for _, wanted := range []string{"add seen", "update seen", "delete seen"} {
		for got := ""; got != wanted; {
			select {
			case got = <-seen:
			case <-time.After(20 * time.Second):
				panic("no " + wanted)
			}
		}
	}
}
