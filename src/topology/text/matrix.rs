//! `nvidia-smi topo -m`: one row a card and NIC, one column likewise, then affinities.
//!
//! The columns of the header say which cells are of cards; NICs may stand anywhere and have any name. A row is only
//! believed where it is certain which column each cell is in. What settles that is the `X` a row has below its own name,
//! and the number of cells: one that got lost moves all behind it.

use super::gathered::{Gathered, said};
use crate::topology::Link;

/// Reads the first table. False: there is none, and nothing was gathered.
pub(super) fn read(text: &str, into: &mut Gathered) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some((at, header)) = header(&lines) else {
        return false;
    };
    for number in header.cards.iter().flatten() {
        into.see(*number);
    }
    for line in &lines[at + 1..] {
        if line.trim_start().starts_with("Legend") {
            break;
        }
        if let Some((number, row)) = row_of(line) {
            row_into(&header, number, &row, into);
        }
    }
    true
}

/// What stands above the columns.
struct Header {
    /// Per column of the matrix; None is a NIC.
    cards: Vec<Option<u32>>,
    /// Names of the columns behind the matrix.
    tail: Vec<Tail>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Cpu,
    Numa,
    /// The NUMA node of the card's own memory, which is not where it is plugged in.
    GpuNuma,
}

/// The line with the most names of cards and no cell, before the first row; a warning names fewer.
fn header(lines: &[&str]) -> Option<(usize, Header)> {
    let first_row = lines.iter().position(|l| row_of(l).is_some()).unwrap_or(lines.len());
    let candidates = lines[..first_row].iter().enumerate().filter_map(|(i, line)| {
        let header = header_of(line)?;
        Some((header.cards.iter().flatten().count(), i, header))
    });
    let (_, at, header) = candidates.max_by_key(|(cards, i, _)| (*cards, *i))?;
    Some((at, header))
}

fn header_of(line: &str) -> Option<Header> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let affinity = words.iter().position(|w| matches!(*w, "CPU" | "NUMA" | "GPU"));
    let (names, rest) = words.split_at(affinity.unwrap_or(words.len()));
    let cards: Vec<Option<u32>> = names
        .iter()
        .flat_map(|w| fused_names(w))
        .map(|w| Gathered::number(w, "GPU"))
        .collect();
    let found = cards.iter().flatten().count();
    // A sentence with one card in it is a warning; a table of one card has affinities, or nothing else at all.
    let sure = found > 1 || (found == 1 && (!rest.is_empty() || line.starts_with([' ', '\t']) || cards.len() == 1));
    let mut tail = vec![];
    let mut rest = rest;
    loop {
        (rest, tail) = match rest {
            ["CPU", "Affinity", more @ ..] => (more, [tail, vec![Tail::Cpu]].concat()),
            ["NUMA", "Affinity", more @ ..] => (more, [tail, vec![Tail::Numa]].concat()),
            ["GPU", "NUMA", "ID", more @ ..] => (more, [tail, vec![Tail::GpuNuma]].concat()),
            // Columns of a later driver: what is behind them is not known.
            _ => break,
        };
    }
    sure.then_some(Header { cards, tail })
}

/// `GPU0GPU1`
fn fused_names(word: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = word.match_indices("GPU").map(|(i, _)| i).collect();
    if starts.first() != Some(&0) {
        return vec![word];
    }
    starts.push(word.len());
    starts.windows(2).map(|w| &word[w[0]..w[1]]).collect()
}

/// The cells of a row. Where tabs separate them an empty one is still there.
struct Row<'a> {
    cells: Vec<&'a str>,
    by_tabs: bool,
    /// Cells had run together. From the first of them on, only their number can say that they are right again.
    fused: bool,
}

/// The row of a card: its name and at least one cell. None for everything else, rows of NICs included.
fn row_of(line: &str) -> Option<(u32, Row<'_>)> {
    let line = line.trim_start();
    let digits = line.strip_prefix("GPU")?;
    let end = "GPU".len() + digits.bytes().take_while(u8::is_ascii_digit).count();
    let (name, rest) = line.split_at(end);
    let number = Gathered::number(name, "GPU")?;
    let by_tabs = rest.trim_start_matches(' ').starts_with('\t');
    let fields: Vec<&str> = if by_tabs {
        rest.trim_start_matches(' ')
            .split('\t')
            .skip(1)
            .map(str::trim)
            .collect()
    } else {
        rest.split_ascii_whitespace().collect()
    };
    let mut row = Row {
        cells: vec![],
        by_tabs,
        fused: false,
    };
    for field in fields {
        match pieces(field) {
            Some(pieces) => {
                row.fused |= pieces.len() > 1;
                row.cells.extend(pieces);
            }
            None => row.cells.push(field),
        }
    }
    row.cells.iter().any(|c| is_cell(c)).then_some((number, row))
}

fn is_cell(text: &str) -> bool {
    text == "X" || Link::read(text).is_some()
}

/// Cells that ran together, with or without a blank, and an affinity behind the last: `NV12SYS`, `SYS0-27`. None where it is
/// not certain where one ends (`NV120-27`), or where there is anything else.
fn pieces(field: &str) -> Option<Vec<&str>> {
    let mut found = vec![];
    let mut rest = field;
    while !rest.is_empty() {
        let fixed = ["X", "SYS", "NODE", "PHB", "PXB", "PIX", "SOC"];
        let word = fixed.iter().find(|w| rest.starts_with(**w)).map(|w| w.len());
        let bonded = || {
            let digits = rest.strip_prefix("NV")?.bytes().take_while(u8::is_ascii_digit).count();
            (digits > 0).then_some(2 + digits)
        };
        let Some(end) = word.or_else(bonded) else {
            let last_is_whole = found.last().is_some_and(|w: &&str| !w.starts_with("NV"));
            let affinity = rest == "N/A" || (last_is_whole && is_affinity(rest));
            found.push(rest);
            return (affinity && found.len() > 1).then_some(found);
        };
        found.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    // An empty cell is a cell.
    (!found.is_empty()).then_some(found)
}

/// `0-55,112-167`, `N/A`: of a column behind the matrix.
fn is_affinity(text: &str) -> bool {
    let list = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b','));
    list || text == "N/A"
}

/// How much of a row is in its place.
enum Trust {
    All,
    /// Cells before the `X`.
    UpToSelf,
    Nothing,
}

fn trust(row: &Row<'_>, own: usize, columns: usize) -> Trust {
    let cells = &row.cells;
    let count = cells.len().min(columns);
    let exact = cells.len() >= columns
        && cells[..columns].iter().all(|c| is_cell(c))
        && cells.get(columns).is_none_or(|c| !is_cell(c));
    let selves: Vec<usize> = (0..count).filter(|i| cells[*i] == "X").collect();
    let in_place = cells.len() >= columns && !row.fused && !cells[..columns].iter().any(|c| is_affinity(c));
    match selves.as_slice() {
        [x] if *x == own && (exact || in_place) => Trust::All,
        [x] if *x == own => Trust::UpToSelf,
        // The X itself is what cannot be read. Tabs still count the cells.
        [] if row.by_tabs && in_place => Trust::All,
        _ => Trust::Nothing,
    }
}

fn row_into(header: &Header, number: u32, row: &Row<'_>, into: &mut Gathered) {
    let columns = header.cards.len();
    let Some(own) = header.cards.iter().position(|c| *c == Some(number)) else {
        into.doubt(format!("row GPU{number}: there is no such column"));
        return;
    };
    let trusted = match trust(row, own, columns) {
        Trust::All => columns,
        Trust::UpToSelf => own,
        Trust::Nothing => 0,
    };
    for (i, card) in header.cards.iter().enumerate() {
        let Some(other) = card.filter(|c| *c != number) else {
            continue;
        };
        let cell = match row.cells.get(i) {
            None => Err("no cell"),
            Some(_) if i >= trusted => Err("a row with lost cells"),
            Some(cell) => Link::read(cell).ok_or(*cell),
        };
        into.cell(number, other, cell);
    }
    if trusted == columns {
        into.see(number).numa_node = numa(header, row);
    }
}

/// The NUMA node a card is near to. A list or a range names several, which is none in particular.
fn numa(header: &Header, row: &Row<'_>) -> Option<u16> {
    let tail = row.cells.get(header.cards.len()..)?;
    if !row.by_tabs && tail.len() != header.tail.len() {
        return None;
    }
    let at = header.tail.iter().position(|t| *t == Tail::Numa)?;
    said(tail.get(at)?)?.parse().ok()
}
