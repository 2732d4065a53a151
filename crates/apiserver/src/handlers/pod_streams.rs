//! Logs, exec, attach, port-forward and proxy: what the server itself can say before a node is asked.

use serde_json::{Value, json};
use shoal_objects::{Errors, Path};

use crate::admission;
use crate::handlers::Call;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Answers requests to the streaming subresources.
pub async fn handle(call: &Call<'_>, name: &str) -> Outcome<Reply> {
    if name == "log" && call.verb != "get" {
        return Err(Failure::method_not_allowed());
    }
    let object = call.served(&*call.stored().await?).await?;
    if name != "log" {
        // Nothing is opened yet, so what becomes of the options does not matter beyond the verdict.
        admission::connect(call, &mut connect_options(call, name)).await?;
    }
    if &*call.target.resource.plural != "pods" {
        return Err(Failure::unavailable("no node agent serves this address"));
    }
    match name {
        "log" => log(call, &object),
        _ => Err(no_host(call, &object)),
    }
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

fn log(call: &Call<'_>, pod: &Value) -> Outcome<Reply> {
    check_log_options(call)?;
    choose_container(call, pod)?;
    if node_of(pod).is_empty() {
        // Nothing has run, so there is nothing to show; no error either.
        return Ok(Reply::text(204, ""));
    }
    Err(no_agent(pod))
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
fn choose_container(call: &Call<'_>, pod: &Value) -> Outcome<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array();
        containers.into_iter().flatten().filter_map(|c| c["name"].as_str()).map(str::to_owned).collect()
    };
    let name = &call.target.name;
    let mine = names("containers");
    match call.query.get("container").filter(|c| !c.is_empty()) {
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

fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
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
