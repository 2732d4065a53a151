//! What expressions of admission know about a request.

use std::sync::LazyLock;

use serde_json::Value;

use super::super::authorizer::{Authorize, Check, Question};
use super::super::opaque::Opaque;
use super::super::{Bindings, CelValue, Env, Type};

/// A request as expressions see it. What does not exist is null.
#[derive(Clone)]
pub struct AdmissionInput<'a> {
    /// The object as it shall be; null on deletion.
    pub object: &'a Value,
    /// The object as it is; null on creation.
    pub old_object: &'a Value,
    /// The AdmissionRequest, without the objects.
    pub request: &'a Value,
    /// The namespace of a namespaced object.
    pub namespace: &'a Value,
    /// What the binding refers to.
    pub params: &'a Value,
    /// Answers questions of `authorizer`.
    pub authorize: Option<Authorize>,
}

const OBJECT: usize = 0;
const OLD_OBJECT: usize = 1;
const REQUEST: usize = 2;
const NAMESPACE: usize = 3;
const AUTHORIZER: usize = 5;
const REQUEST_RESOURCE: usize = 6;
const PARAMS: usize = 7;

/// The environment of admission expressions; `params` is declared for policies that have a kind for it. Variables may be
/// declared as `variables.name` afterwards.
pub fn admission_env(params: bool) -> Env {
    let mut env = Env::new();
    // In the order of the constants above.
    env.declare("object", Type::Dyn);
    env.declare("oldObject", Type::Dyn);
    env.declare("request", REQUEST_TYPE.clone());
    env.declare("namespaceObject", NAMESPACE_TYPE.clone());
    env.declare("variables", Type::object("variables", []));
    env.declare("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"));
    env.declare("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"));
    env.declare(if params { "params" } else { "" }, Type::Dyn);
    env
}

static REQUEST_TYPE: LazyLock<Type> = LazyLock::new(|| {
    let strings =
        |name: &str, fields: [&'static str; 3]| Type::object(name, fields.map(|field| (field, Type::String)));
    let kind = || strings("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = || strings("kubernetes.GroupVersionResource", ["group", "version", "resource"]);
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", Type::String),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
});

static NAMESPACE_TYPE: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::map(Type::String, Type::String);
    let metadata = Type::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    );
    Type::object(
        "kubernetes.Namespace",
        [
            ("metadata", metadata),
            ("spec", Type::object("kubernetes.NamespaceSpec", [("finalizers", Type::list(Type::String))])),
            ("status", Type::object("kubernetes.NamespaceStatus", [("phase", Type::String)])),
        ],
    )
});

/// The values of an environment made by [`admission_env`].
pub fn bind<'a>(input: &AdmissionInput<'a>) -> Bindings<'a> {
    let mut bindings = Bindings::new();
    bindings.set_json(OBJECT, input.object, &Type::Dyn);
    bindings.set_json(OLD_OBJECT, input.old_object, &Type::Dyn);
    bindings.set_json(REQUEST, input.request, &REQUEST_TYPE);
    bindings.set_json(NAMESPACE, input.namespace, &NAMESPACE_TYPE);
    bindings.set_json(PARAMS, input.params, &Type::Dyn);
    if let Some(authorize) = &input.authorize {
        let check = |question: Question| {
            CelValue::opaque(Opaque::Check(Check { authorize: authorize.clone(), question }))
        };
        bindings.set(AUTHORIZER, check(Question::default()));
        bindings.set(REQUEST_RESOURCE, check(requested(input.request)));
    }
    bindings
}

/// The question about the requested resource itself.
fn requested(request: &Value) -> Question {
    let text =
        |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Question {
        group: text("/resource/group"),
        resource: text("/resource/resource"),
        subresource: text("/subResource"),
        namespace: text("/namespace"),
        name: text("/name"),
        ..Question::default()
    }
}
