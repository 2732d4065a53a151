//! ResourceQuota: what a namespace may hold in all.
//!
//! Usage is taken from the store, not from what an earlier request wrote down, so nothing has to be given back when a
//! write fails and a deletion counts at once. Writers of one namespace with quotas take turns.

mod scopes;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use shoal_objects::meta;
use shoal_objects::quantity::{Format, Quantity};
use shoal_store::{EventKind, Object, Precondition, Range};
use tokio::sync::OwnedMutexGuard;

use crate::encode;
use crate::handlers::{Call, served};
use crate::kinds::access::{child_mut, part, set};
use crate::kinds::pod::resources::{Amounts, amounts};
use crate::registry::Resource;
use crate::status::{Failure, Outcome};

/// Locks that nobody holds are dropped when there are more than this.
const SPARE_LOCKS: usize = 1_000;
/// How often the status of a quota is written when others write it too.
const TRIES: usize = 20;

/// One lock per namespace that has quotas.
#[derive(Default)]
pub struct QuotaLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl QuotaLocks {
    async fn take(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            if locks.len() > SPARE_LOCKS {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            locks.entry(namespace.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

/// The namespace's turn to write, and what is to be written down about it afterwards.
#[derive(Default)]
pub struct Charge {
    turn: Option<OwnedMutexGuard<()>>,
    quotas: Vec<(Arc<Object>, Amounts)>,
}

/// Refuses a write that takes more than a quota of its namespace leaves.
pub async fn charge(call: &Call<'_>, object: &Value, old: Option<&Value>, dry_run: bool) -> Outcome<Charge> {
    let resource = &*call.target.resource;
    if !resource.namespaced || !has_quotas(call).await {
        return Ok(Charge::default());
    }
    let turn = call.server.quota_locks.take(&call.target.namespace).await;
    let registry = call.server.registry();
    let Some(quotas) = registry.find("", "v1", "resourcequotas") else { return Ok(Charge::default()) };
    let range = Range::Namespace(&call.target.namespace);
    let mut charge = Charge { turn: Some(turn), quotas: Vec::new() };
    for stored in call.server.store.list(&quotas.table, range, None, 0).await.objects {
        let quota = served(quotas, &stored)?;
        let used = check(call, &quota, object, old).await?;
        if let Some(used) = used
            && !dry_run
        {
            charge.quotas.push((stored, used));
        }
    }
    Ok(charge)
}

impl Charge {
    /// The write is stored: quotas show the new usage, and others may write.
    pub async fn settle(self, call: &Call<'_>) {
        let registry = call.server.registry();
        let Some(quotas) = registry.find("", "v1", "resourcequotas") else { return };
        for (stored, used) in self.quotas {
            show_usage(call, quotas, stored, &used).await;
        }
        drop(self.turn);
    }
}

async fn has_quotas(call: &Call<'_>) -> bool {
    let range = Range::Namespace(&call.target.namespace);
    !call.server.store.list("resourcequotas", range, None, 1).await.objects.is_empty()
}

/// The usage with this write, for the resources of the quota that the object is about; None when it is about none.
async fn check(
    call: &Call<'_>,
    quota: &Value,
    object: &Value,
    old: Option<&Value>,
) -> Outcome<Option<Amounts>> {
    let resource = &*call.target.resource;
    let spec = part(quota, "spec");
    let kind = (&*resource.group, &*resource.plural);
    let hard: Amounts =
        amounts(spec, "hard").into_iter().filter(|(name, _)| usage::kind_of(name) == Some(kind)).collect();
    if hard.is_empty() || !scopes::matches(spec, kind.1, object) {
        return Ok(None);
    }
    let forbidden = |why: &str| Failure::forbidden(resource, meta::name(object), why);
    if kind == ("", "pods") && old.is_none() {
        let bounded: Vec<&str> = hard.keys().map(String::as_str).collect();
        if let Some(why) = usage::unspecified(object, &bounded) {
            return Err(forbidden(&format!("failed quota: {}: {why}", meta::name(quota))));
        }
    }
    let delta = difference(
        &usage::of(kind.0, kind.1, object),
        old.map(|old| usage::of(kind.0, kind.1, old)).unwrap_or_default(),
        &hard,
    );
    if delta.values().all(Quantity::is_zero) {
        return Ok(None);
    }
    let used = namespace_usage(call, resource, spec, &hard).await?;
    if let Some(why) = exceeded(meta::name(quota), &hard, &used, &delta) {
        return Err(forbidden(&why));
    }
    let mut after = used;
    for (name, more) in &delta {
        after.entry(name.clone()).or_insert(Quantity::ZERO).add(more);
    }
    Ok(Some(after))
}

/// What a write adds to the bounded resources.
fn difference(new: &Amounts, old: Amounts, hard: &Amounts) -> Amounts {
    let mut delta: Amounts = new
        .iter()
        .filter(|(name, _)| hard.contains_key(*name))
        .map(|(n, a)| (n.clone(), a.clone()))
        .collect();
    for (name, amount) in old.into_iter().filter(|(name, _)| hard.contains_key(name)) {
        delta.entry(name).or_insert(Quantity::ZERO).sub(&amount);
    }
    delta.retain(|_, amount| !amount.is_zero());
    delta
}

/// In the real server's words: what would be too much.
fn exceeded(name: &str, hard: &Amounts, used: &Amounts, delta: &Amounts) -> Option<String> {
    let zero = Quantity::ZERO;
    let too_much = |name: &&String| {
        let mut sum = used.get(*name).unwrap_or(&zero).clone();
        sum.add(&delta[*name]);
        !delta[*name].is_negative() && sum > hard[*name]
    };
    let names: Vec<&String> = delta.keys().filter(too_much).collect();
    let show = |amounts: &Amounts| {
        let one = |name: &&String| format!("{name}={}", amounts.get(*name).unwrap_or(&zero));
        names.iter().map(one).collect::<Vec<_>>().join(",")
    };
    (!names.is_empty()).then(|| {
        format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            show(delta),
            show(used),
            show(hard)
        )
    })
}

/// What the objects of one kind in the namespace use of the bounded resources.
async fn namespace_usage(
    call: &Call<'_>,
    resource: &Resource,
    spec: &Value,
    hard: &Amounts,
) -> Outcome<Amounts> {
    let range = Range::Namespace(&call.target.namespace);
    let objects = call.server.store.list(&resource.table, range, None, 0).await.objects;
    let scoped = spec.get("scopes").is_some() || spec.get("scopeSelector").is_some();
    let mut sum: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    if !scoped && hard.keys().all(|name| usage::is_plain_count(name)) {
        let number = Quantity::new(i64::try_from(objects.len()).unwrap_or(i64::MAX), Format::DecimalSi);
        return Ok(hard.keys().map(|name| (name.clone(), number.clone())).collect());
    }
    for stored in &objects {
        let object = served(resource, stored)?;
        if scoped && !scopes::matches(spec, &resource.plural, &object) {
            continue;
        }
        for (name, amount) in usage::of(&resource.group, &resource.plural, &object) {
            if let Some(known) = sum.get_mut(&name) {
                known.add(&amount);
            }
        }
    }
    Ok(sum)
}

/// Writes the usage into the status of a quota. Failing to is no reason to fail the request: the next one counts anew.
async fn show_usage(call: &Call<'_>, quotas: &Resource, mut stored: Arc<Object>, used: &Amounts) {
    for _ in 0..TRIES {
        let Ok(mut quota) = served(quotas, &stored) else { return };
        let mut shown: BTreeMap<String, Value> = part(part(&quota, "status"), "used")
            .as_object()
            .map(|used| used.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
            .unwrap_or_default();
        shown.extend(used.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())));
        let hard = part(part(&quota, "spec"), "hard").clone();
        shown.retain(|name, _| hard.get(name).is_some());
        for name in unknown(&hard, &shown) {
            let amount = kind_usage(call, &quota, &name).await.unwrap_or(Quantity::ZERO);
            shown.insert(name, amount.to_string().into());
        }
        let Some(status) = child_mut(&mut quota, "status") else { return };
        set(status, "hard", hard);
        set(status, "used", shown.into_iter().collect::<Map<String, Value>>());
        let draft = encode::draft(quotas, &quota);
        let seal = |revision, _| draft.seal(EventKind::Updated, revision);
        let precondition = Precondition::Revision(stored.revision);
        match call.server.store.put(&quotas.table, &stored.key, precondition, seal).await {
            Err(shoal_store::WriteError::Changed(newer)) => stored = newer,
            _ => return,
        }
    }
}

fn unknown(hard: &Value, shown: &BTreeMap<String, Value>) -> Vec<String> {
    let names = hard.as_object().into_iter().flat_map(Map::keys);
    names.filter(|name| !shown.contains_key(*name)).cloned().collect()
}

/// The usage of one resource of a quota that this request is not about.
async fn kind_usage(call: &Call<'_>, quota: &Value, name: &str) -> Option<Quantity> {
    let (group, plural) = usage::kind_of(name)?;
    let registry = call.server.registry();
    let resource = registry.iter().find(|r| &*r.group == group && &*r.plural == plural)?;
    let hard = Amounts::from([(name.to_owned(), Quantity::ZERO)]);
    let mut used = namespace_usage(call, resource, part(quota, "spec"), &hard).await.ok()?;
    used.remove(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> Amounts {
        entries.iter().map(|(n, a)| ((*n).to_owned(), Quantity::parse(a).unwrap())).collect()
    }

    #[test]
    fn only_what_is_too_much_is_named() {
        let hard = list(&[("pods", "2"), ("requests.cpu", "1")]);
        let delta = list(&[("pods", "1"), ("requests.cpu", "600m")]);
        let used = list(&[("pods", "1"), ("requests.cpu", "500m")]);
        assert_eq!(
            exceeded("q", &hard, &used, &delta).as_deref(),
            Some(
                "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
            )
        );
        assert_eq!(exceeded("q", &hard, &list(&[]), &delta), None);
    }

    #[test]
    fn giving_back_is_always_allowed() {
        let hard = list(&[("requests.storage", "1Gi")]);
        let delta =
            difference(&list(&[("requests.storage", "3Gi")]), list(&[("requests.storage", "5Gi")]), &hard);
        assert_eq!(exceeded("q", &hard, &list(&[("requests.storage", "5Gi")]), &delta), None);
    }
}
