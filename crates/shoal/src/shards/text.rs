//! Plain text for people: tables, durations, counts.

use std::fmt::Write as _;
use std::time::Duration;

/// Columns two spaces apart. A heading that starts with `>` is for numbers, which are set to the right.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let names: Vec<&str> = headings.iter().map(|heading| heading.trim_start_matches('>')).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([names[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate().take(names.len()) {
            let width = widths[column];
            let _ = match headings[column].starts_with('>') {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&mut names.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// A duration as kubectl shows ages.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1 slot`, `2 slots`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Text for one line of a terminal: what a name or message holds must not steer it.
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "7".to_owned()], vec!["longer".to_owned(), "123".to_owned()]];
        assert_eq!(table(&["NAME", ">N"], &rows), "NAME      N\na         7\nlonger  123\n");
    }

    #[test]
    fn ages_are_short() {
        let shown: Vec<String> =
            [0, 9, 61, 125, 7_300, 200_000].map(|s| age(Duration::from_secs(s))).into_iter().collect();
        assert_eq!(shown, ["0.0s", "9.0s", "61s", "2m5s", "2h1m", "2d"]);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(tame("a\u{1b}[31m\nb"), "a [31m b");
    }
}
