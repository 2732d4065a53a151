//! Acting as somebody else: the `Impersonate-*` headers, and what the caller must be allowed for them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Whom a request wants to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    /// Who the caller becomes if all is allowed.
    pub user: UserInfo,
    /// What the caller must be allowed, each with the verb `impersonate`.
    pub needs: Vec<Impersonated>,
}

/// One thing that is taken on, as an attribute of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonated {
    /// The API group: empty or `authentication.k8s.io`.
    pub group: &'static str,
    /// `users`, `serviceaccounts`, `groups`, `userextras` or `uids`.
    pub resource: &'static str,
    /// The key of an extra.
    pub subresource: String,
    /// The namespace of a ServiceAccount.
    pub namespace: String,
    /// The name of the user, account or group, the value of an extra, or the uid.
    pub name: String,
}

/// Groups, a uid or extras without a user. Kubernetes answers 500.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested {0} without impersonating a user")]
pub struct WithoutUser(String);

/// Reads the headers; `None` if the caller acts as themselves.
pub fn impersonation(headers: &HeaderMap) -> Result<Option<Impersonation>, WithoutUser> {
    let username = text(headers, USER).next().unwrap_or_default();
    let groups: Vec<String> = text(headers, GROUP).map(Cow::into_owned).collect();
    let uid = text(headers, UID).next().unwrap_or_default();
    let extra = extras(headers);
    if username.is_empty() {
        return match groups.is_empty() && uid.is_empty() && extra.is_empty() {
            true => Ok(None),
            false => Err(WithoutUser(format!("groups {groups:?}, uid {uid:?}, extra {extra:?}"))),
        };
    }

    let account = username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let mut needs = vec![match account {
        Some((namespace, name)) => Impersonated {
            resource: "serviceaccounts",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Impersonated::default()
        },
        None => {
            Impersonated { resource: "users", name: username.clone().into_owned(), ..Impersonated::default() }
        }
    }];
    needs.extend(groups.iter().map(|group| Impersonated {
        resource: "groups",
        name: group.clone(),
        ..Impersonated::default()
    }));
    for (key, values) in &extra {
        needs.extend(values.iter().map(|value| Impersonated {
            group: AUTHENTICATION_GROUP,
            resource: "userextras",
            subresource: key.clone(),
            name: value.clone(),
            ..Impersonated::default()
        }));
    }
    if !uid.is_empty() {
        let name = uid.clone().into_owned();
        needs.push(Impersonated {
            group: AUTHENTICATION_GROUP,
            resource: "uids",
            name,
            ..Impersonated::default()
        });
    }

    let groups = complete(groups, &username, account.map(|(namespace, _)| namespace));
    let user = UserInfo { username: username.into_owned(), uid: uid.into_owned(), groups, extra };
    Ok(Some(Impersonation { user, needs }))
}

/// Adds the groups that every such user is in.
fn complete(mut groups: Vec<String>, username: &str, namespace: Option<&str>) -> Vec<String> {
    if let (true, Some(namespace)) = (groups.is_empty(), namespace) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let is_in = |group: &str| groups.iter().any(|known| known == group);
    let missing = match username {
        ANONYMOUS => (!is_in(UNAUTHENTICATED)).then_some(UNAUTHENTICATED),
        _ => (!is_in(AUTHENTICATED) && !is_in(UNAUTHENTICATED)).then_some(AUTHENTICATED),
    };
    groups.extend(missing.map(str::to_owned));
    groups
}

fn text<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// Header names cannot hold every character: keys are percent-encoded.
fn extras(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extras = BTreeMap::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = match percent_decode_str(key).decode_utf8() {
            Ok(decoded) => decoded.into_owned(),
            Err(_) => key.to_owned(),
        };
        let values = text(headers, name.as_str()).map(Cow::into_owned);
        extras.entry(key).or_insert_with(Vec::new).extend(values);
    }
    extras
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn read(lines: &[(&'static str, &str)]) -> Result<Option<Impersonation>, WithoutUser> {
        let parsed =
            lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let mut headers = HeaderMap::new();
        parsed.for_each(|(name, value)| {
            headers.append(name, value);
        });
        impersonation(&headers)
    }

    fn need(resource: &'static str, name: &str) -> Impersonated {
        Impersonated { resource, name: name.into(), ..Impersonated::default() }
    }

    #[test]
    fn a_user_with_groups_needs_each_of_them() {
        let jane = [("impersonate-user", "jane"), ("impersonate-group", "a"), ("impersonate-group", "b")];
        let found = read(&jane).unwrap().unwrap();
        assert_eq!(found.user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(found.needs, [need("users", "jane"), need("groups", "a"), need("groups", "b")]);
        assert_eq!(read(&[]).unwrap(), None);
    }

    #[test]
    fn a_service_account_is_in_its_groups_unless_others_are_given() {
        let robot = ("impersonate-user", "system:serviceaccount:ns:robot");
        let found = read(&[robot]).unwrap().unwrap();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(found.user.groups, groups);
        assert_eq!(
            found.needs,
            [Impersonated { namespace: "ns".into(), ..need("serviceaccounts", "robot") }]
        );
        let found = read(&[robot, ("impersonate-group", "g")]).unwrap().unwrap();
        assert_eq!(found.user.groups, ["g", "system:authenticated"]);
    }

    #[test]
    fn nobody_stays_unauthenticated() {
        let found = read(&[("impersonate-user", "system:anonymous")]).unwrap().unwrap();
        assert_eq!(found.user.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn extras_and_uids_are_needed_in_their_own_group() {
        let found = read(&[
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.com%2fproject", "x"),
            ("impersonate-extra-acme.com%2fproject", "y"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!(found.user.uid, "7");
        assert_eq!(found.user.extra["acme.com/project"], ["x", "y"]);
        assert_eq!(found.needs.len(), 4);
        assert_eq!(
            (found.needs[1].group, found.needs[1].subresource.as_str()),
            (AUTHENTICATION_GROUP, "acme.com/project")
        );
        assert_eq!(found.needs[3].resource, "uids");
    }

    #[test]
    fn nothing_is_taken_on_without_a_user() {
        for line in
            [("impersonate-group", "system:masters"), ("impersonate-uid", "1"), ("impersonate-extra-a", "b")]
        {
            assert!(read(&[line]).unwrap_err().to_string().ends_with("without impersonating a user"));
        }
    }
}
