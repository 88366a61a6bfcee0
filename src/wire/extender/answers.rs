//! Answers of filter and prioritize, written straight into bytes.

use std::collections::HashSet;

use super::args::ExtenderArgs;
use super::verdicts::Verdicts;
use crate::wire::json::write_string;

/// Writes ExtenderFilterResult. `verdicts` is aligned with `args.names`. Every
/// refusal goes into FailedAndUnresolvableNodes: evicting pods cannot change what an extender says during
/// the in-tree dry run, so a node in FailedNodes would only cost time and confuse the event.
/// A node without a verdict (there are too few) is refused.
pub fn filter_result(args: &ExtenderArgs<'_>, verdicts: &Verdicts) -> Vec<u8> {
    // What follows a name, each text escaped once.
    let entry = |words: &str| {
        let mut entry = vec![b':'];
        write_string(&mut entry, words);
        entry.push(b',');
        entry
    };
    let names = &args.names;
    let codes = verdicts.codes();
    let codes = codes.get(..names.len()).unwrap_or(codes);
    let texts: Vec<Vec<u8>> = verdicts.words().iter().map(|words| entry(words)).collect();
    let words: usize = texts
        .iter()
        .zip(verdicts.refused())
        .map(|(text, n)| text.len() * n)
        .sum();
    // Of whole nodes that pass there is no telling; names that were escaped take more.
    let mut out = Vec::with_capacity(256 + words + names.size());
    out.extend_from_slice(br#"{"Nodes":"#);
    match &args.nodes {
        None => out.extend_from_slice(b"null"),
        Some(nodes) => {
            out.extend_from_slice(br#"{"metadata":{},"items":["#);
            let fits: HashSet<&str> = verdicts.fitting().filter_map(|at| names.get(at)).collect();
            for node in nodes.iter().filter(|n| fits.contains(n.name.as_str())) {
                out.extend_from_slice(node.raw.get().as_bytes());
                out.push(b',');
            }
            end_list(&mut out);
            out.extend_from_slice(b"]}");
        }
    }
    out.extend_from_slice(br#","NodeNames":"#);
    if args.by_name {
        out.push(b'[');
        let mut at = 0;
        for run in codes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            let end = at + run.len();
            if run.first() == Some(&0) {
                out.extend_from_slice(names.written_run(at..end));
                out.push(b',');
            }
            at = end;
        }
        end_list(&mut out);
        out.push(b']');
    } else {
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(br#","FailedNodes":{},"FailedAndUnresolvableNodes":{"#);
    for (name, code) in names.written_from(0).zip(codes) {
        if let Some(text) = (*code as usize).checked_sub(1).and_then(|at| texts.get(at)) {
            out.extend_from_slice(name);
            out.extend_from_slice(text);
        }
    }
    for name in names.written_from(codes.len()) {
        out.extend_from_slice(name);
        out.extend(entry("wattlane gave no verdict on this node"));
    }
    end_list(&mut out);
    out.extend_from_slice(br#"},"Error":""}"#);
    out
}

/// Writes the HostPriorityList; `scores` is aligned with `args.names`, a missing one is 0.
pub fn prioritize_result(args: &ExtenderArgs<'_>, scores: &[u8]) -> Vec<u8> {
    /// Longest: `{"Host":` before a name, `,"Score":255},` after it.
    const AROUND: usize = 8 + 14;
    let names = &args.names;
    // What follows a name, and what comes before the next.
    let most = scores.iter().copied().max().unwrap_or(0);
    let entries: Vec<Vec<u8>> = (0..=most)
        .map(|score| format!(r#","Score":{score}}},{{"Host":"#).into_bytes())
        .collect();
    let mut out = Vec::with_capacity(16 + names.size() + names.len() * AROUND);
    out.extend_from_slice(br#"[{"Host":"#);
    let scores = scores.iter().copied().chain(std::iter::repeat(0));
    for (name, score) in names.written_from(0).zip(scores) {
        out.extend_from_slice(name);
        out.extend_from_slice(&entries[usize::from(score)]);
    }
    // The next that does not come.
    let next = br#"{"Host":"#;
    out.truncate(out.len() - next.len());
    end_list(&mut out);
    out.push(b']');
    out
}

/// Takes the comma behind the last entry away.
fn end_list(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
}
