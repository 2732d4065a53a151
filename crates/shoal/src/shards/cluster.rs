//! The group on its API server: read, compared and swapped. Plain requests, so that any version of the kind will do.

use anyhow::{Context as _, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use shoal_objects::Clock;
use shoal_runtime::monotonic::Monotonic;
use shoal_sharding::{LEASE_ANNOTATION, LeaseRecord, ShardMap, ShardMapSpec, encode_lease, encode_map};

use super::snapshot::{GROUP_LABEL, Snapshot};

/// API group of ShardMaps.
const API_GROUP: &str = "sharding.shoal.dev";
/// So often a change is tried again when others were faster.
const TRIES: u32 = 20;

/// Clocks, which tests replace.
pub struct Clocks {
    /// The time of day, for showing.
    pub day: Clock,
    /// The own clock, for waiting.
    pub own: Monotonic,
}

/// One group of a cluster.
pub struct Group {
    client: Client,
    /// What time it is.
    pub clocks: Clocks,
    /// Path of the ShardMap.
    path: String,
    /// Whether `status` is written by a path of its own.
    has_status: bool,
    namespace: String,
    name: String,
}

/// What a write came to.
pub enum Written {
    /// It is done.
    Done,
    /// Somebody else was faster.
    Conflict,
}

/// Finds the group: the one that is named, or the only one there is.
pub async fn find(
    client: Client,
    clocks: Clocks,
    namespace: Option<&str>,
    group: Option<&str>,
) -> anyhow::Result<Group> {
    let (version, has_status) = served(&client).await?;
    let here = namespace.unwrap_or(client.default_namespace()).to_owned();
    let base = format!("/apis/{API_GROUP}/{version}");
    let list: Value = get(&client, &format!("{base}/shardmaps"), "list ShardMaps of all namespaces").await?;
    let text =
        |map: &Value, path: &str| map.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let maps: Vec<(String, String)> = list
        .get("items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|map| (text(map, "/metadata/namespace"), text(map, "/metadata/name")))
        .collect();
    let (namespace, name) = choose(&maps, namespace, &here, group)?;
    Ok(Group {
        path: format!("{base}/namespaces/{namespace}/shardmaps/{name}"),
        has_status,
        client,
        clocks,
        namespace,
        name,
    })
}

/// The group that is meant, of those there are.
fn choose(
    maps: &[(String, String)],
    asked: Option<&str>,
    here: &str,
    group: Option<&str>,
) -> anyhow::Result<(String, String)> {
    let list = |maps: &[&(String, String)]| {
        maps.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect::<Vec<_>>().join(", ")
    };
    let all: Vec<&(String, String)> = maps.iter().collect();
    if all.is_empty() {
        bail!("no sharded controller has run in this cluster: there is no ShardMap; start one and try again");
    }
    let named: Vec<&(String, String)> =
        maps.iter().filter(|(_, name)| group.is_none_or(|g| g == name)).collect();
    let in_place: Vec<&(String, String)> =
        named.iter().copied().filter(|(namespace, _)| namespace == asked.unwrap_or(here)).collect();
    match (&in_place[..], &named[..]) {
        ([one], _) => Ok((*one).clone()),
        // Without -n the only one there is is meant, wherever it is.
        ([], [one]) if asked.is_none() => Ok((*one).clone()),
        ([], []) => bail!(
            "there is no group called {}; there are {}: choose one with --group NAME",
            group.unwrap_or_default(),
            list(&all)
        ),
        ([], found) => bail!(
            "there is no such group in namespace {}; there are {}: choose with -n NAMESPACE and --group NAME",
            asked.unwrap_or(here),
            list(found)
        ),
        (several, _) => bail!("several groups are there: {}; choose one with --group NAME", list(several)),
    }
}

/// The served version of ShardMaps, and whether their status is a subresource.
async fn served(client: &Client) -> anyhow::Result<(String, bool)> {
    let none =
        "this cluster has no ShardMaps: no sharded controller has been installed; start one and try again";
    let what = "ask which versions of ShardMaps are served";
    let group: Option<Value> = get_opt(client, &format!("/apis/{API_GROUP}"), what).await?;
    let version = group
        .as_ref()
        .and_then(|group| group.pointer("/preferredVersion/version")?.as_str())
        .with_context(|| none.to_owned())?
        .to_owned();
    let resources: Value = get(client, &format!("/apis/{API_GROUP}/{version}"), what).await?;
    let names: Vec<&str> = resources
        .get("resources")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|resource| resource.get("name")?.as_str())
        .collect();
    if !names.contains(&"shardmaps") {
        bail!("{none}");
    }
    Ok((version, names.contains(&"shardmaps/status")))
}

impl Group {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything about it, now.
    pub async fn read(&self) -> anyhow::Result<Snapshot> {
        let map = self.map().await?;
        let leases = self.leases().await?;
        Ok(Snapshot::read(&map, &leases, self.clocks.day.now()))
    }

    async fn map(&self) -> anyhow::Result<Value> {
        let what = format!("read the ShardMap {}", self.name);
        let map = get_opt(&self.client, &self.path, &what).await?;
        map.with_context(|| {
            format!("the ShardMap {} is gone; its replicas write a new one, try again in a minute", self.name)
        })
    }

    async fn leases(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let list: Value =
            get(&self.client, &path, &format!("list Leases in namespace {}", self.namespace)).await?;
        Ok(items(list))
    }

    /// Events about the record, in no order.
    pub async fn events(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!(
            "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.kind%3DShardMap,involvedObject.name%3D{}",
            self.namespace, self.name
        );
        Ok(items(get(&self.client, &path, "list Events").await?))
    }

    /// Changes what people ask for: by compare-and-swap, again when others were faster. `change` is told what is
    /// there and says whether it changed anything. Returns what it was decided on.
    pub async fn edit(
        &self,
        mut change: impl FnMut(&Snapshot, &mut ShardMapSpec) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Snapshot> {
        let leases = self.leases().await?;
        for _ in 0..TRIES {
            let mut map = self.map().await?;
            let snapshot = Snapshot::read(&map, &leases, self.clocks.day.now());
            let mut spec = snapshot.spec.clone();
            if !change(&snapshot, &mut spec)? {
                return Ok(snapshot);
            }
            map["spec"] = serde_json::to_value(&spec)?;
            match self.put(&self.path, &map, &format!("change the ShardMap {}", self.name)).await? {
                Written::Done => return Ok(Snapshot { spec, ..snapshot }),
                Written::Conflict => {}
            }
        }
        bail!("the ShardMap {} changes all the time; try again when less is on the move", self.name)
    }

    /// Replaces the record if it is still the one that `snapshot` shows.
    pub async fn replace_record(&self, snapshot: &Snapshot, record: &ShardMap) -> anyhow::Result<Written> {
        let mut map = self.map().await?;
        let now = Snapshot::read(&map, &[], self.clocks.day.now());
        if now.map() != snapshot.map() {
            return Ok(Written::Conflict);
        }
        let new = serde_json::to_value(encode_map(record))?;
        match (map.get_mut("status").and_then(Value::as_object_mut), new) {
            // Conditions and whatever else stands there stay.
            (Some(status), Value::Object(new)) => status.extend(new),
            (_, new) => map["status"] = new,
        }
        let path = if self.has_status { format!("{}/status", self.path) } else { self.path.clone() };
        self.put(&path, &map, &format!("change the record of {}", self.name)).await
    }

    /// Ends a Lease in exactly the version that was seen, or puts a tombstone where there is none.
    pub async fn bury(&self, tombstone: &LeaseRecord, version: Option<u64>) -> anyhow::Result<Written> {
        let id = &tombstone.replica;
        let what = format!("end the Lease {id}");
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let annotation = encode_lease(tombstone);
        let Some(version) = version else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": id.as_str(),
                    "labels": {GROUP_LABEL: self.name},
                    "annotations": {LEASE_ANNOTATION: annotation},
                },
                "spec": {"holderIdentity": id.as_str()},
            });
            return self.send("POST", &path, &lease, &what).await;
        };
        let path = format!("{path}/{id}");
        let Some(mut lease) = get_opt(&self.client, &path, &what).await? else {
            return Ok(Written::Conflict);
        };
        if lease.pointer("/metadata/resourceVersion").and_then(Value::as_str) != Some(&version.to_string()) {
            return Ok(Written::Conflict);
        }
        lease["metadata"]["annotations"][LEASE_ANNOTATION] = annotation.into();
        self.put(&path, &lease, &what).await
    }

    async fn put(&self, path: &str, object: &Value, what: &str) -> anyhow::Result<Written> {
        self.send("PUT", path, object, what).await
    }

    async fn send(&self, method: &str, path: &str, object: &Value, what: &str) -> anyhow::Result<Written> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(object)?)?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(Written::Done),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Conflict),
            Err(error) => Err(told(error, what)),
        }
    }
}

fn items(mut list: Value) -> Vec<Value> {
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

async fn get(client: &Client, path: &str, what: &str) -> anyhow::Result<Value> {
    let found = get_opt(client, path, what).await?;
    found.with_context(|| format!("cannot {what}: the server does not know {path}"))
}

async fn get_opt(client: &Client, path: &str, what: &str) -> anyhow::Result<Option<Value>> {
    let request = Request::get(path).body(Vec::new())?;
    match client.request::<Value>(request).await {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(told(error, what)),
    }
}

/// What failed and what to do.
fn told(error: kube::Error, what: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow::anyhow!(
            "cannot {what}: the server does not know you; check the credentials of your kubeconfig"
        ),
        kube::Error::Api(status) if status.code == 403 => {
            anyhow::anyhow!(
                "cannot {what}: {}; ask the cluster's administrator for that right",
                status.message
            )
        }
        kube::Error::Api(status) => anyhow::anyhow!("cannot {what}: {}", status.message),
        error => anyhow::anyhow!(
            "cannot {what}: {}; check that the API server of your kubeconfig runs",
            root(&error)
        ),
    }
}

/// The innermost cause, which says the most.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(namespace, name)| ((*namespace).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn the_only_group_is_meant_and_several_are_listed() {
        let one = maps(&[("prod", "web")]);
        assert_eq!(choose(&one, None, "default", None).unwrap(), one[0]);
        assert_eq!(choose(&one, Some("prod"), "default", Some("web")).unwrap(), one[0]);
        let several = maps(&[("default", "a"), ("default", "b"), ("prod", "a")]);
        assert_eq!(choose(&several, None, "default", Some("a")).unwrap(), several[0]);
        for (asked, group, words) in [
            (None, None, "several groups are there: default/a, default/b; choose one with --group"),
            (None, Some("c"), "no group called c; there are default/a, default/b, prod/a"),
            (Some("prod"), Some("b"), "no such group in namespace prod; there are default/b"),
        ] {
            let error = choose(&several, asked, "default", group).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = choose(&one, Some("test"), "default", None).unwrap_err().to_string();
        assert!(error.contains("there are prod/web: choose with -n"), "{error}");
        assert!(choose(&[], None, "default", None).unwrap_err().to_string().contains("start one"));
    }
}
