//! Amounts of resources: `1500m`, `2Gi`, `1e3`.
//!
//! A quantity is an exact decimal number that remembers which family of suffixes it was written with. Values keep 38
//! significant digits; what is finer than nano, or beyond those digits, is rounded away from zero: who asks for some
//! of a resource gets some. Binary quantities are capped at 2^63-1.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// The most digits an `i128` always holds.
const MAX_DIGITS: usize = 38;
/// Nothing is finer than nano.
const MIN_EXPONENT: i64 = -9;
const DECIMAL_SUFFIXES: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12M`
    DecimalSi,
    /// `12Mi`
    BinarySi,
    /// `12e6`
    DecimalExponent,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// It has no known suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An amount. Compared by value, whatever the suffix.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The value is `mantissa × 10^exponent`; no zeros at the end of the mantissa, and 0 is `0 × 10^0`.
    mantissa: i128,
    exponent: i64,
    format: Format,
    /// The text it was read from, when the real server would give that back unchanged.
    text: Option<Box<str>>,
}

/// The canonical form of a quantity's text.
pub fn canonicalize(text: &str) -> Result<String, QuantityError> {
    Ok(Quantity::parse(text)?.to_string())
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity { mantissa: 0, exponent: 0, format: Format::DecimalSi, text: None };

    /// A whole number.
    pub fn new(value: i64, format: Format) -> Quantity {
        Quantity::normal(i128::from(value), 0, format)
    }

    /// A number of thousandths.
    pub fn from_milli(milli: i64) -> Quantity {
        Quantity::normal(i128::from(milli), -3, Format::DecimalSi)
    }

    /// Reads a quantity from text.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let parts = Parts::scan(text)?;
        let (base, exponent, format) = interpret_suffix(parts.suffix)?;
        let (mut mantissa, dropped) = significant(parts.whole, parts.fraction);
        let mut scale = dropped - parts.fraction.len() as i64;
        if base == 10 {
            scale = scale.saturating_add(exponent);
        } else {
            let factor = 1_i128 << exponent;
            while mantissa.checked_mul(factor).is_none() {
                mantissa = divide_up(mantissa, 10);
                scale += 1;
            }
            mantissa *= factor;
        }
        let mut quantity = Quantity::normal(mantissa, scale, format);
        quantity.round_up(MIN_EXPONENT);
        if format == Format::BinarySi {
            let most = Quantity::new(i64::MAX, format);
            if quantity > most {
                quantity = most;
            }
            if quantity.mantissa > 0 && quantity < Quantity::new(1, format) {
                quantity.format = Format::DecimalSi;
            }
        }
        if parts.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        if parts.is_kept(exponent, format) {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }

    /// Reads a quantity from JSON, where a number stands for its text and null for nothing.
    pub fn from_json(value: &Value) -> Result<Quantity, QuantityError> {
        match value {
            Value::String(text) => Quantity::parse(text),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            Value::Null => Ok(Quantity::ZERO),
            _ => Err(QuantityError::Format),
        }
    }

    fn normal(mut mantissa: i128, mut exponent: i64, format: Format) -> Quantity {
        if mantissa == 0 {
            exponent = 0;
        }
        while mantissa != 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        Quantity { mantissa, exponent, format, text: None }
    }

    /// The suffixes it is written with.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The value in whole units, rounded away from zero, at the limits of `i64` when beyond.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The value in thousandths, rounded away from zero, at the limits of `i64` when beyond.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    fn scaled_value(&self, exponent: i64) -> i64 {
        let limit = if self.mantissa < 0 { i64::MIN } else { i64::MAX };
        let shift = self.exponent.saturating_sub(exponent);
        let scaled = if shift < 0 {
            Some(shift_right_up(self.mantissa, shift.unsigned_abs()))
        } else {
            shift_left(self.mantissa, shift.unsigned_abs())
        };
        scaled.and_then(|value| i64::try_from(value).ok()).unwrap_or(limit)
    }

    /// Makes the value a multiple of `10^exponent`, away from zero. Resource lists are kept in thousandths (-3).
    pub fn round_up(&mut self, exponent: i64) {
        if self.exponent < exponent && self.mantissa != 0 {
            let drop = exponent.saturating_sub(self.exponent).unsigned_abs();
            *self = Quantity::normal(shift_right_up(self.mantissa, drop), exponent, self.format);
        }
    }

    /// Adds; nothing takes over the suffixes of what is added.
    pub fn add(&mut self, other: &Quantity) {
        self.combine(other, |a, b| a + b);
    }

    /// Subtracts; nothing takes over the suffixes of what is subtracted.
    pub fn sub(&mut self, other: &Quantity) {
        self.combine(other, |a, b| a - b);
    }

    fn combine(&mut self, other: &Quantity, combine: fn(i128, i128) -> i128) {
        let format = if self.is_zero() { other.format } else { self.format };
        let (a, b, exponent) = align(self, other);
        *self = Quantity::normal(combine(a, b), exponent, format);
    }

    fn as_binary(&self) -> Option<String> {
        let mut whole = shift_left(self.mantissa, u64::try_from(self.exponent).ok()?)?;
        if (-1023..=1023).contains(&whole) {
            return None;
        }
        let mut suffix = "";
        for next in BINARY_SUFFIXES {
            if whole % 1024 != 0 {
                break;
            }
            whole /= 1024;
            suffix = next;
        }
        Some(format!("{whole}{suffix}"))
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that keeps the value exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some(text) = self.as_binary()
        {
            return f.write_str(&text);
        }
        let zeros = self.exponent.rem_euclid(3);
        let exponent = self.exponent - zeros;
        write!(f, "{}{}", self.mantissa, ["", "0", "00"][zeros as usize])?;
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent);
        match suffix {
            Some((suffix, _)) if self.format != Format::DecimalExponent || exponent == 0 => {
                f.write_str(suffix)
            }
            _ => write!(f, "e{exponent}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        let by_sign = self.mantissa.signum().cmp(&other.mantissa.signum());
        if by_sign != Ordering::Equal || self.mantissa == 0 {
            return by_sign;
        }
        let by_size = compare_magnitude(self, other);
        if self.mantissa < 0 { by_size.reverse() } else { by_size }
    }
}

/// The pieces of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without zeros in front; `0` when there are none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn scan(text: &'a str) -> Result<Parts<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
    }

    /// Whether the real server takes the text for canonical as it is. It is generous: `+5`, `1.500` and `1.` stay.
    fn is_kept(&self, exponent: i64, format: Format) -> bool {
        let (whole, fraction) = (self.whole.len() as i64, self.fraction.len() as i64);
        if format == Format::BinarySi {
            let value: i64 = self.whole.parse().unwrap_or(0);
            return fraction == 0
                && whole + exponent * 3 / 10 < 15
                && value.checked_mul(1 << exponent).is_some()
                && value & 7 != 0;
        }
        let scale = exponent - fraction;
        let first = if self.whole == "0" { b'0' } else { b'1' };
        let ends_in_zeros = {
            let last = self.fraction.bytes().rev().chain(self.whole.bytes().rev()).take(3);
            whole + fraction >= 3 && last.eq(*b"000")
        };
        whole + fraction <= 18 && scale >= MIN_EXPONENT && scale % 3 == 0 && first != b'0' && !ends_in_zeros
    }
}

fn split_digits(s: &str) -> (&str, &str) {
    s.split_at(s.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(s.len()))
}

fn interpret_suffix(suffix: &str) -> Result<(u8, i64, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
        return Ok((10, *exponent, Format::DecimalSi));
    }
    if let Some(position) = BINARY_SUFFIXES.iter().position(|s| *s == suffix) {
        return Ok((2, 10 * (position as i64 + 1), Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    exponent.map(|e| (10, i64::from(e), Format::DecimalExponent)).ok_or(QuantityError::Suffix)
}

/// The first digits of `whole` and `fraction` as a number, and how many digits at the end were rounded into it.
fn significant(whole: &str, fraction: &str) -> (i128, i64) {
    let digits = || whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0');
    let mantissa = digits().take(MAX_DIGITS).fold(0_i128, |m, b| m * 10 + i128::from(b - b'0'));
    let rest = digits().skip(MAX_DIGITS);
    let (dropped, any) = rest.fold((0, false), |(n, any), b| (n + 1, any || b != b'0'));
    (mantissa + i128::from(any), dropped)
}

fn divide_up(value: i128, by: i128) -> i128 {
    value / by + (value % by).signum()
}

fn shift_right_up(value: i128, digits: u64) -> i128 {
    match u32::try_from(digits).ok().and_then(|d| 10_i128.checked_pow(d)) {
        Some(by) => divide_up(value, by),
        None => value.signum(),
    }
}

fn shift_left(value: i128, digits: u64) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    value.checked_mul(10_i128.checked_pow(u32::try_from(digits).ok()?)?)
}

/// Both values as multiples of one power of ten, halved in range so that their sum fits.
fn align(a: &Quantity, b: &Quantity) -> (i128, i128, i64) {
    if a.is_zero() || b.is_zero() || a.exponent == b.exponent {
        let exponent = if a.is_zero() { b.exponent } else { a.exponent };
        return (a.mantissa, b.mantissa, exponent);
    }
    if a.exponent < b.exponent {
        let (b, a, exponent) = align(b, a);
        return (a, b, exponent);
    }
    let (mut high, mut exponent) = (a.mantissa, a.exponent);
    while exponent > b.exponent && high.unsigned_abs() < (i128::MAX / 20).unsigned_abs() {
        high *= 10;
        exponent -= 1;
    }
    let drop = exponent.saturating_sub(b.exponent).unsigned_abs();
    (high, shift_right_up(b.mantissa, drop), exponent)
}

fn compare_magnitude(a: &Quantity, b: &Quantity) -> Ordering {
    let size = |q: &Quantity| i64::from(q.mantissa.unsigned_abs().ilog10()).saturating_add(q.exponent);
    let by_size = size(a).cmp(&size(b));
    if by_size != Ordering::Equal {
        return by_size;
    }
    if a.exponent < b.exponent {
        return compare_magnitude(b, a).reverse();
    }
    // Equal sizes: the exponents differ by at most the length of a mantissa. Too large to multiply is larger.
    let shift = u32::try_from(a.exponent.saturating_sub(b.exponent)).unwrap_or(u32::MAX);
    let scaled = 10_u128.checked_pow(shift).and_then(|by| a.mantissa.unsigned_abs().checked_mul(by));
    scaled.map_or(Ordering::Greater, |scaled| scaled.cmp(&b.mantissa.unsigned_abs()))
}

#[cfg(test)]
mod tests;
