//! Questions to the authorizer: `authorizer.group('').resource('pods').check('get').allowed()`.

use super::Row;
use crate::cel::authorizer::{Check, Decision, Question};
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::value::CelValue;

const NARROW: &[&str] = &["resourcecheck.(string)resourcecheck"];

pub const ROWS: &[Row] = &[
    ("serviceAccount", &["authorizer.(string,string)authorizer"], service_account),
    ("path", &["authorizer.(string)pathcheck"], |_, args| {
        refine(args, |question, text| question.path = Some(text))
    }),
    ("group", &["authorizer.(string)groupcheck"], |_, args| {
        refine(args, |question, text| question.group = text)
    }),
    ("resource", &["groupcheck.(string)resourcecheck"], |_, args| {
        refine(args, |question, text| question.resource = text)
    }),
    ("subresource", NARROW, |_, args| refine(args, |question, text| question.subresource = text)),
    ("namespace", NARROW, |_, args| refine(args, |question, text| question.namespace = text)),
    ("name", NARROW, |_, args| refine(args, |question, text| question.name = text)),
    ("fieldSelector", NARROW, |_, args| refine(args, |question, text| question.field_selector = text)),
    ("labelSelector", NARROW, |_, args| refine(args, |question, text| question.label_selector = text)),
    ("check", &["pathcheck.(string)decision", "resourcecheck.(string)decision"], check),
    ("allowed", &["decision.()bool"], |_, args| Ok(CelValue::Bool(decision(args)?.allowed))),
    ("reason", &["decision.()string"], |_, args| Ok(CelValue::text(decision(args)?.reason.as_str()))),
    ("errored", &["decision.()bool"], |_, args| Ok(CelValue::Bool(decision(args)?.error.is_some()))),
    ("error", &["decision.()string"], |_, args| {
        Ok(CelValue::text(decision(args)?.error.clone().unwrap_or_default()))
    }),
];

/// What one answer costs.
const CHECK_COST: u64 = 10_000;
const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn question<'b>(args: &'b [CelValue<'_>]) -> Result<&'b Check, EvalError> {
    match args.first() {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Check(check) => Ok(check),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn decision<'b>(args: &'b [CelValue<'_>]) -> Result<&'b Decision, EvalError> {
    match args.first() {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Decision(decision) => Ok(decision),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn refine<'a>(args: &[CelValue<'a>], change: fn(&mut Question, String)) -> Evaluated<'a> {
    let mut check = question(args)?.clone();
    let text = args.get(1).and_then(CelValue::as_str).ok_or(MISMATCH)?;
    change(&mut check.question, text.to_owned());
    Ok(CelValue::opaque(Opaque::Check(check)))
}

fn service_account<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let mut check = question(args)?.clone();
    let [_, CelValue::String(namespace), CelValue::String(name)] = args else { return Err(MISMATCH) };
    check.question.service_account = Some((namespace.as_str().to_owned(), name.as_str().to_owned()));
    Ok(CelValue::opaque(Opaque::Check(check)))
}

fn check<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let check = question(args)?;
    let verb = args.get(1).and_then(CelValue::as_str).ok_or(MISMATCH)?;
    budget.charge(CHECK_COST)?;
    let question = Question { verb: verb.to_owned(), ..check.question.clone() };
    Ok(CelValue::opaque(Opaque::Decision((check.authorize)(&question))))
}
