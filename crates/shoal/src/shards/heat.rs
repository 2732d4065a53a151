//! Every slot as one cell: whose it is, whether it moves, how busy it is.

use std::fmt::Write as _;

use shoal_sharding::{Phase, ShardMap};

/// Cells in a line.
const WIDTH: usize = 64;
/// Lines at most: larger groups share cells.
const LINES: usize = 16;

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// Nobody has one of its slots.
    Nobody,
    /// One of its slots is on the move.
    Moves,
    /// One replica has all of it: its place, and how busy the cell is, 0 to 3.
    Owner(usize, u8),
    /// Several replicas have slots of it.
    Mixed,
}

/// The sign of a replica, by its place among all.
pub fn letter(at: usize) -> char {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    LETTERS.get(at).map_or('#', |letter| char::from(*letter))
}

/// The map of all slots; `replicas` are the ids in the order of the table, `loads` what slots cost.
pub fn heat_map(map: &ShardMap, replicas: &[&str], loads: &[(u32, u32)], colours: bool) -> String {
    let slots = map.identity.slots.get() as usize;
    let each = slots.div_ceil(WIDTH * LINES).max(1);
    let cells = cells(map, replicas, loads, each);
    let mut text = format!("slots, {} a line", WIDTH * each);
    if each > 1 {
        let _ = write!(text, ", {each} a cell");
    }
    text += ": letters are owners, > moves, ! is nobody's";
    text += if each > 1 { ", * is several\n" } else { "\n" };
    for (line, cells) in cells.chunks(WIDTH).enumerate() {
        let _ = write!(text, "{:>5} ", line * WIDTH * each);
        for cell in cells {
            paint(&mut text, *cell, colours);
        }
        text.push('\n');
    }
    text
}

fn cells(map: &ShardMap, replicas: &[&str], loads: &[(u32, u32)], each: usize) -> Vec<Cell> {
    let slots = map.identity.slots.get() as usize;
    let mut busy = vec![0_u64; slots.div_ceil(each)];
    for (slot, cost) in loads {
        if let Some(cell) = busy.get_mut(*slot as usize / each) {
            *cell += u64::from(*cost);
        }
    }
    let most = busy.iter().copied().max().unwrap_or_default().max(1);
    let mut cells: Vec<Option<Cell>> = vec![None; busy.len()];
    for run in map.runs() {
        let of_run = match (run.assignment.phase, &run.assignment.owner) {
            (Phase::Preparing | Phase::Draining, _) => Cell::Moves,
            (_, Some(owner)) => {
                let at = replicas.iter().position(|id| *id == owner.as_str());
                Cell::Owner(at.unwrap_or(usize::MAX), 0)
            }
            _ => Cell::Nobody,
        };
        let (first, last) = (run.slots.start as usize / each, (run.slots.end as usize - 1) / each);
        for cell in cells.iter_mut().take(last + 1).skip(first) {
            *cell = Some(match *cell {
                None => of_run,
                Some(before) if before == of_run => before,
                Some(Cell::Nobody) => Cell::Nobody,
                Some(_) if of_run == Cell::Nobody => Cell::Nobody,
                Some(Cell::Moves) => Cell::Moves,
                Some(_) if of_run == Cell::Moves => Cell::Moves,
                Some(_) => Cell::Mixed,
            });
        }
    }
    let warm = |(at, cell): (usize, Option<Cell>)| match cell.unwrap_or(Cell::Nobody) {
        Cell::Owner(owner, _) => Cell::Owner(owner, (busy[at] * 3).div_ceil(most) as u8),
        other => other,
    };
    cells.into_iter().enumerate().map(warm).collect()
}

/// One cell. Colours tell the replicas apart; the busier a cell, the brighter.
fn paint(text: &mut String, cell: Cell, colours: bool) {
    const COLOURS: [u8; 6] = [32, 36, 34, 35, 33, 37];
    let (sign, colour) = match cell {
        Cell::Nobody => ('!', "1;37;41".to_owned()),
        Cell::Moves => ('>', "1;30;43".to_owned()),
        Cell::Mixed => ('*', "2;37".to_owned()),
        Cell::Owner(at, heat) => {
            let colour = COLOURS[at % COLOURS.len()];
            let bright = match heat {
                0 => String::new(),
                1 => "1;".to_owned(),
                2 => "1;4;".to_owned(),
                _ => "1;7;".to_owned(),
            };
            (letter(at), format!("{bright}{colour}"))
        }
    };
    let _ = match colours {
        true => write!(text, "\u{1b}[{colour}m{sign}\u{1b}[0m"),
        false => write!(text, "{sign}"),
    };
}
