//! Functions on texts. Positions count characters, not bytes.

use super::Row;
use super::printing;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::value::CelValue;

pub const ROWS: &[Row] = &[
    ("startsWith", &["string.(string)bool"], starts_with),
    ("endsWith", &["string.(string)bool"], ends_with),
    ("contains", &["string.(string)bool"], contains),
    ("charAt", &["string.(int)string"], char_at),
    ("indexOf", &["string.(string)int", "string.(string,int)int"], index_of),
    ("lastIndexOf", &["string.(string)int", "string.(string,int)int"], last_index_of),
    ("lowerAscii", &["string.()string"], lower_ascii),
    ("upperAscii", &["string.()string"], upper_ascii),
    ("replace", &["string.(string,string)string", "string.(string,string,int)string"], replace),
    ("split", &["string.(string)list<string>", "string.(string,int)list<string>"], split),
    ("substring", &["string.(int)string", "string.(int,int)string"], substring),
    ("trim", &["string.()string"], trim),
    ("reverse", &["string.()string"], reverse),
    ("join", &["list<string>.()string", "list<string>.(string)string"], join),
    ("format", &["string.(list<dyn>)string"], format),
    ("strings.quote", &["(string)string"], quote),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn two<'b>(budget: &mut Budget, args: &'b [CelValue<'_>]) -> Result<(&'b str, &'b str), EvalError> {
    match args {
        [CelValue::String(a), CelValue::String(b)] => {
            budget.charge_text(a.as_str().len() + b.as_str().len())?;
            Ok((a.as_str(), b.as_str()))
        }
        _ => Err(MISMATCH),
    }
}

fn one<'b>(budget: &mut Budget, args: &'b [CelValue<'_>]) -> Result<&'b str, EvalError> {
    match args {
        [CelValue::String(text)] => {
            budget.charge_text(text.as_str().len())?;
            Ok(text.as_str())
        }
        _ => Err(MISMATCH),
    }
}

fn starts_with<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::String(text), CelValue::String(start)] => {
            budget.charge_text(start.as_str().len())?;
            Ok(CelValue::Bool(text.as_str().starts_with(start.as_str())))
        }
        _ => Err(MISMATCH),
    }
}

fn ends_with<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::String(text), CelValue::String(end)] => {
            budget.charge_text(end.as_str().len())?;
            Ok(CelValue::Bool(text.as_str().ends_with(end.as_str())))
        }
        _ => Err(MISMATCH),
    }
}

fn contains<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (text, part) = two(budget, args)?;
    Ok(CelValue::Bool(text.contains(part)))
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::owned(format!("index out of range: {index}"))
}

/// The byte offset of the character at `index`; the end of the text counts.
fn offset(text: &str, index: i64) -> Result<usize, EvalError> {
    let wanted = usize::try_from(index).map_err(|_| out_of_range(index))?;
    let mut offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    offsets.nth(wanted).ok_or_else(|| out_of_range(index))
}

fn characters(text: &str, bytes: usize) -> i64 {
    text.get(..bytes).map_or(0, |before| before.chars().count()) as i64
}

fn char_at<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(text), CelValue::Int(index)] = args else { return Err(MISMATCH) };
    budget.charge_text(text.as_str().len())?;
    let rest = text.as_str().get(offset(text.as_str(), *index)?..).unwrap_or_default();
    Ok(rest.chars().next().map_or(CelValue::borrowed(""), |c| CelValue::text(c.to_string())))
}

fn index_of<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (pair, from) = match args {
        [_, _] => (args, 0),
        [_, _, CelValue::Int(from)] => (args.get(..2).unwrap_or_default(), *from),
        _ => return Err(MISMATCH),
    };
    let (text, part) = two(budget, pair)?;
    let start = offset(text, from)?;
    let found = text.get(start..).and_then(|rest| rest.find(part));
    Ok(CelValue::Int(found.map_or(-1, |at| characters(text, start + at))))
}

fn last_index_of<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (pair, until) = match args {
        [_, _] => (args, None),
        [_, _, CelValue::Int(until)] => (args.get(..2).unwrap_or_default(), Some(*until)),
        _ => return Err(MISMATCH),
    };
    let (text, part) = two(budget, pair)?;
    // A match may start at the last allowed position, so it may end one part later.
    let end = match until {
        None => text.len(),
        Some(until) => {
            let length = part.chars().count() as i64;
            offset(text, until)?;
            offset(text, until.saturating_add(length)).unwrap_or(text.len())
        }
    };
    let found = text.get(..end).and_then(|head| head.rfind(part));
    Ok(CelValue::Int(found.map_or(-1, |at| characters(text, at))))
}

fn lower_ascii<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(one(budget, args)?.to_ascii_lowercase()))
}

fn upper_ascii<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(one(budget, args)?.to_ascii_uppercase()))
}

fn trim<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(one(budget, args)?.trim()))
}

fn reverse<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(one(budget, args)?.chars().rev().collect::<String>()))
}

fn quote<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let text = one(budget, args)?;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(CelValue::text(out))
}

/// How many occurrences a limit allows; negative is all.
fn limited(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn replace<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (text, from, to, limit) = match args {
        [CelValue::String(text), CelValue::String(from), CelValue::String(to)] => {
            (text, from, to, usize::MAX)
        }
        [CelValue::String(text), CelValue::String(from), CelValue::String(to), CelValue::Int(limit)] => {
            (text, from, to, limited(*limit))
        }
        _ => return Err(MISMATCH),
    };
    let (text, from, to) = (text.as_str(), from.as_str(), to.as_str());
    budget.charge_text(text.len())?;
    let count = text.matches(from).take(limit).count();
    budget.charge_text(count.saturating_mul(to.len()))?;
    Ok(CelValue::text(text.replacen(from, to, limit)))
}

fn split<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (text, by, limit) = match args {
        [CelValue::String(text), CelValue::String(by)] => (text, by, usize::MAX),
        [CelValue::String(text), CelValue::String(by), CelValue::Int(limit)] => (text, by, limited(*limit)),
        _ => return Err(MISMATCH),
    };
    let (text, by) = (text.as_str(), by.as_str());
    budget.charge_text(text.len())?;
    let mut parts = Vec::new();
    if by.is_empty() {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 >= limit {
                break;
            }
            budget.charge(1)?;
            let (head, tail) = rest.split_at(c.len_utf8());
            parts.push(CelValue::text(head));
            rest = tail;
        }
        if !rest.is_empty() && limit > 0 {
            parts.push(CelValue::text(rest));
        }
    } else {
        for part in text.splitn(limit, by) {
            budget.charge(1)?;
            parts.push(CelValue::text(part));
        }
    }
    Ok(CelValue::list(parts))
}

fn substring<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (text, start, end) = match args {
        [CelValue::String(text), CelValue::Int(start)] => (text.as_str(), *start, None),
        [CelValue::String(text), CelValue::Int(start), CelValue::Int(end)] => {
            (text.as_str(), *start, Some(*end))
        }
        _ => return Err(MISMATCH),
    };
    budget.charge_text(text.len())?;
    if let Some(end) = end
        && end < start
    {
        return Err(EvalError::owned(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = offset(text, start)?;
    let to = end.map_or(Ok(text.len()), |end| offset(text, end))?;
    Ok(CelValue::text(text.get(from..to).unwrap_or_default()))
}

fn join<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let (list, by) = match args {
        [CelValue::List(list)] => (list, ""),
        [CelValue::List(list), CelValue::String(by)] => (list, by.as_str()),
        _ => return Err(MISMATCH),
    };
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        let text = item.as_str().ok_or(MISMATCH)?;
        budget.charge(1)?;
        budget.charge_text(text.len() + by.len())?;
        if index > 0 {
            out.push_str(by);
        }
        out.push_str(text);
    }
    Ok(CelValue::text(out))
}

fn format<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    match args {
        [CelValue::String(pattern), CelValue::List(values)] => {
            printing::format(budget, pattern.as_str(), values).map(CelValue::text)
        }
        _ => Err(MISMATCH),
    }
}
