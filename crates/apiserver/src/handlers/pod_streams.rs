//! Logs, exec, attach, port-forward and proxy: what the server itself can say before a node is asked.

use serde_json::{Value, json};
use shoal_objects::{Errors, Path};

use super::node_proxy::{self, node_of, query};
use crate::admission;
use crate::handlers::{Call, proxy};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Answers requests to the streaming subresources.
pub async fn handle(call: &Call<'_>, name: &str) -> Outcome<Reply> {
    if name == "log" && call.verb != "get" {
        return Err(Failure::method_not_allowed());
    }
    let plural = &*call.target.resource.plural;
    let mut options = connect_options(call, name);
    if let ("pods" | "services", "proxy") = (plural, name) {
        admission::connect(call, &mut options).await?;
        return proxy::handle(call).await;
    }
    let object = call.served(&*call.stored().await?).await?;
    if name != "log" {
        admission::connect(call, &mut options).await?;
    }
    match (plural, name) {
        ("pods", "log") => log(call, &object).await,
        ("pods", "exec" | "attach") => stream(call, name, &object, &options).await,
        ("pods", "portforward") => port_forward(call, &object).await,
        ("nodes", "proxy") => node_proxy(call).await,
        ("pods", _) => Err(no_host(call, &object)),
        _ => Err(Failure::unavailable("no node agent serves this address")),
    }
}

/// Where a pod's agent has something about one of its containers.
fn agent_path(call: &Call<'_>, what: &str, container: &str, options: &[(&str, String)]) -> String {
    let (namespace, pod) = (&call.target.namespace, &call.target.name);
    format!("/{what}/{namespace}/{pod}/{container}?{}", query(options))
}

async fn stream(call: &Call<'_>, name: &str, pod: &Value, wanted: &Value) -> Outcome<Reply> {
    let container = choose_container(call, pod, wanted["container"].as_str())?;
    if node_of(pod).is_empty() {
        return Err(no_host(call, pod));
    }
    let mut options = Vec::new();
    for (field, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if wanted[field] == true {
            options.push((theirs, "1".to_owned()));
        }
    }
    if name == "exec" {
        let command = wanted["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
        options.extend(command.map(|word| ("command", word.to_owned())));
    }
    node_proxy::forward(call, node_of(pod), &agent_path(call, name, &container, &options), true).await
}

async fn port_forward(call: &Call<'_>, pod: &Value) -> Outcome<Reply> {
    if node_of(pod).is_empty() {
        return Err(no_host(call, pod));
    }
    let path = format!("/portForward/{}/{}", call.target.namespace, call.target.name);
    node_proxy::forward(call, node_of(pod), &path, true).await
}

/// What a node's agent serves itself.
async fn node_proxy(call: &Call<'_>) -> Outcome<Reply> {
    let (_, path) = call.target.subresource.split_once('/').unwrap_or_default();
    let options: Vec<(&str, String)> =
        call.query.pairs().iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let path = format!("/{path}?{}", query(&options));
    node_proxy::forward(call, &call.target.name, &path, false).await
}

/// The query as the options object that admission sees.
fn connect_options(call: &Call<'_>, name: &str) -> Value {
    let kind = call.target.resource.subresource(name).map_or("", |sub| &*sub.kind);
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for field in ["stdin", "stdout", "stderr", "tty"] {
        if call.query.get(field).is_some() {
            options[field] = call.query.flag(field).into();
        }
    }
    if let Some(container) = call.query.get("container").filter(|c| !c.is_empty()) {
        options["container"] = container.into();
    }
    let command: Vec<&str> = call.query.all("command").collect();
    if !command.is_empty() {
        options["command"] = command.into();
    }
    let ports: Vec<i64> = call.query.all("ports").filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options["ports"] = ports.into();
    }
    if let Some((_, path)) = call.target.subresource.split_once('/').filter(|_| name == "proxy") {
        options["path"] = format!("/{path}").into();
    }
    options
}

async fn log(call: &Call<'_>, pod: &Value) -> Outcome<Reply> {
    check_log_options(call)?;
    let container = choose_container(call, pod, call.query.get("container"))?;
    if node_of(pod).is_empty() {
        // Nothing has run, so there is nothing to show; no error either.
        return Ok(Reply::text(204, ""));
    }
    let known = [
        "follow",
        "previous",
        "sinceSeconds",
        "sinceTime",
        "timestamps",
        "tailLines",
        "limitBytes",
        "stream",
    ];
    let mut options = Vec::new();
    for name in known {
        if let Some(value) = call.query.get(name) {
            let is_flag = matches!(name, "follow" | "previous" | "timestamps");
            options.push((name, if is_flag { call.query.flag(name).to_string() } else { value.to_owned() }));
        }
    }
    let path = agent_path(call, "containerLogs", &container, &options);
    node_proxy::forward(call, node_of(pod), &path, call.query.flag("follow")).await
}

fn check_log_options(call: &Call<'_>) -> Outcome<()> {
    let mut errors = Errors::new();
    for option in ["tailLines", "limitBytes", "sinceSeconds"] {
        let least = i64::from(option != "tailLines");
        if let Some(number) = call.query.number(option)?
            && number < least
        {
            let text =
                if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.invalid(&Path::new(option), &json!(number), text);
        }
    }
    if call.query.get("sinceSeconds").is_some() && call.query.get("sinceTime").is_some() {
        errors.forbidden(
            &Path::new("sinceSeconds"),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        );
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid("", "PodLogOptions", &call.target.name, &errors))
}

/// The container asked for, or the only one there is.
fn choose_container(call: &Call<'_>, pod: &Value, wanted: Option<&str>) -> Outcome<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array();
        containers.into_iter().flatten().filter_map(|c| c["name"].as_str()).map(str::to_owned).collect()
    };
    let name = &call.target.name;
    let mine = names("containers");
    match wanted.filter(|c| !c.is_empty()) {
        Some(wanted) => {
            let all = [mine, names("initContainers"), names("ephemeralContainers")].concat();
            match all.into_iter().find(|c| c == wanted) {
                Some(found) => Ok(found),
                None => Err(Failure::bad_request(format!("container {wanted} is not valid for pod {name}"))),
            }
        }
        None if mine.len() == 1 => Ok(mine.into_iter().next().unwrap_or_default()),
        None => Err(Failure::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            mine.join(" ")
        ))),
    }
}

fn no_host(call: &Call<'_>, pod: &Value) -> Failure {
    if node_of(pod).is_empty() {
        return Failure::bad_request(format!("pod {} does not have a host assigned", call.target.name));
    }
    no_agent(pod)
}

fn no_agent(pod: &Value) -> Failure {
    Failure::internal(format!("no agent of node {:?} can be reached", node_of(pod)))
}
