use proptest::prelude::*;

use super::*;

fn q(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn canonical_forms_are_those_of_the_real_server() {
    for (text, canonical) in [
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1e3", "1e3"),
        ("1.5", "1500m"),
        ("2048Mi", "2Gi"),
        ("0.5Gi", "512Mi"),
        ("0.0001", "100u"),
        ("1000", "1k"),
        ("1000k", "1M"),
        ("1073741824", "1073741824"),
        ("1.5Gi", "1536Mi"),
        ("0.1", "100m"),
        ("0", "0"),
        ("0Ki", "0"),
        ("+", "0"),
        ("m", "0"),
        ("-0", "0"),
        ("-1.5", "-1500m"),
        ("-2048Ki", "-2Mi"),
        ("100Ki", "100Ki"),
        ("0.5Ki", "512"),
        ("1.3Ki", "1331200m"),
        ("0.0001Ki", "102400u"),
        ("1e4", "10e3"),
        ("1e-1", "100e-3"),
        ("1E3", "1E3"),
        ("1E", "1E"),
        ("1000E", "1e21"),
        ("12e6", "12e6"),
        ("0.9n", "1n"),
        ("1e-30", "1e-9"),
        ("-0.1n", "-1n"),
        ("9Ei", "9223372036854775807"),
        ("8Ei", "9223372036854775807"),
        ("18446744073709551616", "18446744073709551616"),
        ("12345678901234567890123", "12345678901234567890123"),
        // Kept as written, although not canonical: so does the real server.
        ("+5", "+5"),
        ("005", "005"),
        ("1.500", "1.500"),
        ("1.", "1."),
    ] {
        assert_eq!(canonicalize(text).as_deref(), Ok(canonical), "{text}");
    }
}

#[test]
fn what_is_not_a_quantity_is_refused() {
    for (text, error) in [
        ("", QuantityError::Format),
        ("abc", QuantityError::Format),
        ("1x", QuantityError::Format),
        ("1.2.3", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("--1", QuantityError::Suffix),
        ("1K", QuantityError::Suffix),
        ("1ki", QuantityError::Suffix),
        ("1ee3", QuantityError::Suffix),
        ("1e99999999999", QuantityError::Suffix),
        ("1Mi5", QuantityError::Suffix),
    ] {
        assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
    }
    assert_eq!(
        QuantityError::Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn numbers_are_rounded_away_from_zero() {
    assert_eq!((q("1.1").value(), q("-1.1").value(), q("1.0001").milli_value()), (2, -2, 1001));
    assert_eq!((q("1e30").value(), q("-1e2000000000").value()), (i64::MAX, i64::MIN));
    assert_eq!((q("1Gi").value(), q("100u").milli_value(), q("2").milli_value()), (1 << 30, 1, 2000));
    let mut tiny = q("100u");
    tiny.round_up(-3);
    assert_eq!(tiny.to_string(), "1m");
    let mut kept = q("1.500");
    kept.round_up(-3);
    assert_eq!(kept.to_string(), "1.500");
}

#[test]
fn sums_keep_the_suffixes_of_the_first() {
    let sum = |a: &str, b: &str| {
        let mut sum = q(a);
        sum.add(&q(b));
        sum.to_string()
    };
    assert_eq!(sum("1Gi", "1Gi"), "2Gi");
    assert_eq!(sum("500m", "1"), "1500m");
    assert_eq!(sum("0", "1Ki"), "1Ki");
    assert_eq!(sum("1Gi", "1M"), "1074741824");
    assert!(q(&sum("1e2000000000", "1")) > q("1e2000000000"));
    let mut rest = q("2Gi");
    rest.sub(&q("1.5Gi"));
    assert_eq!(rest.to_string(), "512Mi");
}

#[test]
fn hostile_texts_are_handled_in_linear_time() {
    let digits = "9".repeat(1_000_000);
    for suffix in ["", "Ei", "n", "e2147483647"] {
        let quantity = q(&format!("{digits}{suffix}"));
        assert!(quantity > q("1"));
        let _ = (quantity.to_string(), quantity.value());
    }
    assert_eq!(q(&format!("0.{}1", "0".repeat(1_000_000))).to_string(), "1n");
    for exponent in ["1e2147483647", "1e-2147483648", "-1e2147483647"] {
        let mut quantity = q(exponent);
        quantity.add(&q("1n"));
        quantity.sub(&q("99999999999999999999999999999999999999Ei"));
        let _ = quantity.to_string();
    }
}

fn any_quantity() -> impl Strategy<Value = String> {
    let suffix = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2",
        "e+7",
    ]);
    ("[+-]?", "[0-9]{1,22}", "(\\.[0-9]{0,12})?", suffix).prop_map(|(a, b, c, d)| format!("{a}{b}{c}{d}"))
}

proptest! {
    #[test]
    fn the_canonical_form_is_its_own_canonical_form(text in any_quantity()) {
        let once = canonicalize(&text).unwrap();
        prop_assert_eq!(q(&once), q(&text));
        prop_assert_eq!(canonicalize(&once).unwrap(), once);
    }

    #[test]
    fn order_does_not_depend_on_how_it_is_written(a in any_quantity(), b in any_quantity()) {
        let canonical = |text: &str| q(&canonicalize(text).unwrap());
        prop_assert_eq!(q(&a).cmp(&q(&b)), canonical(&a).cmp(&canonical(&b)));
        prop_assert_eq!(q(&a).cmp(&q(&b)), q(&b).cmp(&q(&a)).reverse());
    }

    #[test]
    fn taking_away_undoes_adding(a in -1_000_000_000_000_i64.., b: i64) {
        let (a, b) = (Quantity::from_milli(a), Quantity::new(b, Format::BinarySi));
        let mut sum = a.clone();
        sum.add(&b);
        prop_assert_eq!(sum > a, b > Quantity::ZERO);
        sum.sub(&b);
        prop_assert_eq!(sum, a);
    }

    #[test]
    fn nothing_panics(text in "[+-]?[0-9.]{0,50}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let _ = (quantity.to_string(), quantity.value(), quantity.milli_value());
        }
    }
}
