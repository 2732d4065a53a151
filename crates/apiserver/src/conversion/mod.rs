//! Custom objects in other versions than the stored one, where a webhook converts them.
//!
//! Conversion happens where objects leave or enter the store, and where managers own fields in several versions. Many
//! objects are sent together.

mod review;

use serde_json::Value;

use crate::handlers::from_storage;
use crate::kinds::access::{list_at, part, str_at};
use crate::outbound::{self, Bounds};
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{Failure, Outcome};

/// As in the real server.
const SECONDS: u64 = 30;
/// Reviews are cut near this size, so that neither side has to hold much more.
const REVIEW_BYTES: usize = 4 * 1024 * 1024;
/// Converted objects may be larger than the original ones, but not without bound.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The program that converts objects of a definition.
#[derive(Debug)]
pub struct Webhook {
    config: Value,
    /// The version of ConversionReview it is sent.
    review_version: &'static str,
}

impl Webhook {
    /// The webhook of a definition, if it has one.
    pub fn of(definition: &Value) -> Option<Webhook> {
        let conversion = part(part(definition, "spec"), "conversion");
        if str_at(conversion, "strategy") != "Webhook" {
            return None;
        }
        let webhook = part(conversion, "webhook");
        let mut versions = list_at(webhook, "conversionReviewVersions").iter().filter_map(Value::as_str);
        let review_version = versions.find_map(|version| match version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
        Some(Webhook {
            config: part(webhook, "clientConfig").clone(),
            review_version: review_version.unwrap_or("v1"),
        })
    }

    /// The objects in another version; those that are in it already are not sent.
    pub async fn convert(
        &self,
        server: &Inner,
        api_version: &str,
        mut objects: Vec<Value>,
    ) -> Outcome<Vec<Value>> {
        let other: Vec<usize> =
            (0..objects.len()).filter(|at| needs_conversion(&objects[*at], api_version)).collect();
        let mut rest = other.as_slice();
        while !rest.is_empty() {
            let mut sent: Vec<Value> = Vec::new();
            let mut bytes = 0;
            while bytes < REVIEW_BYTES
                && let Some((first, others)) = rest.split_first()
            {
                let object = std::mem::take(&mut objects[*first]);
                bytes += object.to_string().len();
                sent.push(object);
                rest = others;
            }
            let from = other.len() - rest.len() - sent.len();
            let converted = self.ask(server, api_version, &sent).await.map_err(failure)?;
            for (at, object) in other[from..].iter().zip(converted) {
                objects[*at] = object;
            }
        }
        Ok(objects)
    }

    async fn ask(&self, server: &Inner, api_version: &str, objects: &[Value]) -> Result<Vec<Value>, String> {
        let uid = server.entropy.uid();
        let question = review::question(&uid, self.review_version, api_version, objects);
        let bounds = Bounds { seconds: SECONDS, answer_bytes: ANSWER_BYTES };
        let about = objects.first().map(review::kind_of).unwrap_or_default();
        let failed = |why: String| format!("conversion webhook for {about} failed: {why}");
        let body =
            outbound::post(server, &self.config, question.to_string(), bounds).await.map_err(failed)?;
        let converted = review::answer(&body, &uid, self.review_version).map_err(failed)?;
        if converted.len() != objects.len() {
            let (found, expected) = (converted.len(), objects.len());
            return Err(format!(
                "conversion webhook for {about} returned {found} objects, expected {expected}"
            ));
        }
        let checked = objects.iter().zip(converted).enumerate().map(|(at, (original, converted))| {
            review::checked(original, converted, api_version)
                .map_err(|why| format!("conversion webhook for {about} returned invalid {}", why.at(at)))
        });
        checked.collect()
    }
}

fn needs_conversion(object: &Value, api_version: &str) -> bool {
    let given = str_at(object, "apiVersion");
    !given.is_empty() && given != api_version && object.get("metadata").is_some()
}

fn failure(why: String) -> Failure {
    Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError", why)
}

/// The webhook of a resource, if it has one.
pub fn webhook(resource: &Resource) -> Option<&Webhook> {
    resource.custom.as_ref()?.webhook.as_deref()
}

/// An object of one resource as another one of the same table shows it.
pub async fn between(server: &Inner, from: &Resource, to: &Resource, object: Value) -> Outcome<Value> {
    let object = match webhook(to) {
        Some(webhook) => first(webhook.convert(server, &to.api_version, vec![object]).await?)?,
        None => crate::handlers::to_storage(from, object),
    };
    Ok(from_storage(to, object))
}

/// An object in the version it is stored in.
pub async fn to_storage(server: &Inner, resource: &Resource, object: Value) -> Outcome<Value> {
    match (webhook(resource), &resource.custom) {
        (Some(webhook), Some(custom)) => {
            first(webhook.convert(server, &custom.storage_version, vec![object]).await?)
        }
        _ => Ok(crate::handlers::to_storage(resource, object)),
    }
}

fn first(objects: Vec<Value>) -> Outcome<Value> {
    objects.into_iter().next().ok_or_else(|| Failure::internal("a conversion gave nothing"))
}
