//! IPAddress and ServiceCIDR.

use shoal_objects::{Errors, Path, Value, meta, names};

use super::access::{field, list_at};
use super::{NameRule, Rules, checks, net};

/// The rules of IPAddress, whose name is the address.
pub const ADDRESS_RULES: Rules = Rules {
    validate: validate_address,
    validate_update: |new, old, errors| {
        let none = Value::Null;
        let (new, old) = (field(new, "spec").unwrap_or(&none), field(old, "spec").unwrap_or(&none));
        checks::immutable(new, old, "parentRef", &Path::new("spec"), errors);
    },
    name: NameRule::Free,
    ..Rules::NONE
};

/// The rules of ServiceCIDR.
pub const CIDR_RULES: Rules =
    Rules { validate: validate_cidrs, validate_update: validate_cidrs_update, ..Rules::NONE };

fn validate_address(address: &Value, errors: &mut Errors) {
    let name = meta::name(address);
    let metadata = Path::new("metadata");
    checks::text(errors, &metadata.child("name"), name, names::ip_address(name));
    let spec = Path::new("spec");
    let path = spec.child("parentRef");
    let Some(parent) = field(address, "spec").and_then(|spec| field(spec, "parentRef")) else {
        errors.required(&path, "");
        return;
    };
    checks::optional_text(parent, "group", &path, errors, names::dns1123_subdomain);
    checks::required_text(parent, "resource", &path, errors, names::path_segment_name);
    checks::required_text(parent, "name", &path, errors, names::path_segment_name);
    checks::optional_text(parent, "namespace", &path, errors, names::path_segment_name);
}

fn validate_cidrs(service_cidr: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let path = spec.child("cidrs");
    let cidrs = field(service_cidr, "spec").map(|spec| list_at(spec, "cidrs")).unwrap_or_default();
    if cidrs.is_empty() {
        errors.required(&path, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        let given = Value::from(cidrs.to_vec());
        errors.invalid(&path, &given, "must only contain 2 CIDRs");
        return;
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        net::cidr(errors, &path.index(i), cidr.as_str().unwrap_or_default());
    }
    if let [first, second] = cidrs
        && first.as_str().is_some_and(|c| c.contains(':')) == second.as_str().is_some_and(|c| c.contains(':'))
    {
        let given = Value::from(cidrs.to_vec());
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96";
        errors.invalid(&path, &given, detail);
    }
}

/// A second family may be added; what is there stays.
fn validate_cidrs_update(new: &Value, old: &Value, errors: &mut Errors) {
    let cidrs = |v| field(v, "spec").map(|spec| list_at(spec, "cidrs")).unwrap_or_default();
    let spec = Path::new("spec");
    let path = spec.child("cidrs");
    if cidrs(new).len() < cidrs(old).len() {
        let given = Value::from(cidrs(new).to_vec());
        errors.invalid(&path, &given, checks::IMMUTABLE);
    }
    for (i, (now, before)) in cidrs(new).iter().zip(cidrs(old)).enumerate() {
        if now != before {
            errors.invalid(&path.index(i), now, checks::IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_is_named_by_itself_and_has_a_parent() {
        let address = json!({"metadata": {"name": "10.0.0.01"}, "spec": {}});
        assert_eq!(
            causes(|e| validate_address(&address, e)),
            ["metadata.name FieldValueInvalid", "spec.parentRef FieldValueRequired"]
        );
    }

    #[test]
    fn there_is_one_block_for_each_family() {
        let blocks = |cidrs: Value| json!({"spec": {"cidrs": cidrs}});
        assert!(causes(|e| validate_cidrs(&blocks(json!(["10.0.0.0/8", "fd00::/64"])), e)).is_empty());
        assert_eq!(causes(|e| validate_cidrs(&blocks(json!(["10.0.0.0/8", "11.0.0.0/8"])), e)).len(), 1);
        assert_eq!(causes(|e| validate_cidrs(&blocks(json!([])), e)), ["spec.cidrs FieldValueRequired"]);
        let (old, new) = (blocks(json!(["10.0.0.0/8"])), blocks(json!(["10.0.0.0/8", "fd00::/64"])));
        assert!(causes(|e| validate_cidrs_update(&new, &old, e)).is_empty());
        assert_eq!(causes(|e| validate_cidrs_update(&old, &new, e)), ["spec.cidrs FieldValueInvalid"]);
    }
}
