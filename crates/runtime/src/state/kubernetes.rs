//! State in ConfigMaps, one per key. Versions are compared here and swapped by the API server's resourceVersion.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use shoal_objects::{Clock, Entropy};

use super::{Error, Record, StateStore, Version, decode, name, next};

/// Marks the ConfigMaps of a store; the value is the store's name.
const LABEL: &str = "shoal.dev/state";
/// The key inside the ConfigMap.
const DATA: &str = "record";
/// What the API server accepts in a ConfigMap, less room for metadata.
const MOST: usize = 1_000_000;

/// State in one namespace of a cluster.
pub struct KubernetesStore {
    maps: Api<ConfigMap>,
    name: String,
    clock: Clock,
    entropy: Entropy,
}

impl KubernetesStore {
    /// The store of this name. Its ConfigMaps are called after it.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        clock: Clock,
        entropy: Entropy,
    ) -> KubernetesStore {
        KubernetesStore { maps: Api::namespaced(client, namespace), name: name.to_owned(), clock, entropy }
    }

    fn object_name(&self, key: &str) -> Result<String, Error> {
        name::encode(&format!("{}-", self.name), key)
    }

    async fn read(&self, key: &str) -> Result<Option<(ConfigMap, Record)>, Error> {
        let name = self.object_name(key)?;
        let map = self.maps.get_opt(&name).await.map_err(|error| request(key, error))?;
        map.map(|map| record(key, &map).map(|record| (map, record))).transpose()
    }

    async fn write(&self, key: &str, value: Value, based_on: Option<&Version>) -> Result<Record, Error> {
        let stored = self.read(key).await?;
        let before = stored.as_ref().map(|(_, record)| record);
        let record = next(before, based_on, key, value, self.clock.now(), &self.entropy)?;
        let text = serde_json::to_string(&record)
            .map_err(|error| Error::Damaged { key: key.to_owned(), why: error.to_string() })?;
        if text.len() > MOST {
            return Err(Error::TooLarge { key: key.to_owned(), size: text.len(), most: MOST });
        }
        let data = [(DATA.to_owned(), text)].into();
        let written = match stored {
            // uid and resourceVersion of what was read are in it.
            Some((mut map, _)) => {
                map.data = Some(data);
                self.maps.replace(&map.name_any(), &PostParams::default(), &map).await
            }
            None => {
                let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
                map.metadata.name = Some(self.object_name(key)?);
                map.metadata.labels = Some([(LABEL.to_owned(), self.name.clone())].into());
                self.maps.create(&PostParams::default(), &map).await
            }
        };
        written.map(|_| record).map_err(|error| request(key, error))
    }

    async fn remove(&self, key: &str, based_on: &Version) -> Result<(), Error> {
        let Some((map, record)) = self.read(key).await? else {
            return Err(Error::Conflict { key: key.to_owned() });
        };
        if record.version != *based_on {
            return Err(Error::Conflict { key: key.to_owned() });
        }
        let preconditions = Preconditions { uid: map.uid(), resource_version: map.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.maps.delete(&map.name_any(), &params).await.map(|_| ()).map_err(|error| request(key, error))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut params = ListParams::default().labels(&format!("{LABEL}={}", self.name)).limit(500);
        let mut keys = Vec::new();
        loop {
            let page = self.maps.list(&params).await.map_err(|error| request(prefix, error))?;
            for map in &page.items {
                let text =
                    map.data.as_ref().and_then(|data| data.get(DATA)).map(String::as_str).unwrap_or_default();
                // What is damaged is told when it is read.
                if let Ok(record) = serde_json::from_str::<Record>(text)
                    && record.key.starts_with(prefix)
                {
                    keys.push(record.key);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
        keys.sort();
        Ok(keys)
    }
}

impl StateStore for KubernetesStore {
    fn save<'a>(
        &'a self,
        key: &'a str,
        value: Value,
        based_on: Option<&'a Version>,
    ) -> BoxFuture<'a, Result<Record, Error>> {
        self.write(key, value, based_on).boxed()
    }

    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Record>, Error>> {
        async move { Ok(self.read(key).await?.map(|(_, record)| record)) }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, based_on: &'a Version) -> BoxFuture<'a, Result<(), Error>> {
        self.remove(key, based_on).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        self.keys(prefix).boxed()
    }
}

fn record(key: &str, map: &ConfigMap) -> Result<Record, Error> {
    let text = map.data.as_ref().and_then(|data| data.get(DATA)).map(String::as_str).unwrap_or_default();
    decode(key, text.as_bytes())
}

/// Conflict, "already exists" and "not found" all say that our view was old.
fn request(key: &str, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status)
            if status.code == 409 || status.code == 404 && status.reason == "NotFound" =>
        {
            Error::Conflict { key: key.to_owned() }
        }
        error => Error::Request { key: key.to_owned(), source: Box::new(error) },
    }
}
