//! Answers of filter and prioritize, written straight into bytes.

use std::collections::HashSet;

use super::args::{ExtenderArgs, NodeName};
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
    let texts: Vec<Vec<u8>> = verdicts.words().iter().map(|words| entry(words)).collect();
    let missing = entry("wattlane gave no verdict on this node");
    let text = |code: usize| texts.get(code.wrapping_sub(1)).unwrap_or(&missing);
    let codes = || verdicts.codes(args.names.len());
    let passed = || {
        let fits = |(name, code)| (code == 0).then_some(name);
        args.names.iter().zip(codes()).filter_map(fits)
    };
    let words: usize = codes().map(|code| if code == 0 { 0 } else { text(code).len() }).sum();
    let names: usize = args.names.iter().map(|name| name.as_str().len() + 3).sum();
    // Of whole nodes that pass there is no telling; names that were escaped take more.
    let mut out = Vec::with_capacity(256 + words + names);
    out.extend_from_slice(br#"{"Nodes":"#);
    match &args.nodes {
        None => out.extend_from_slice(b"null"),
        Some(nodes) => {
            out.extend_from_slice(br#"{"metadata":{},"items":["#);
            let fits: HashSet<&str> = passed().map(NodeName::as_str).collect();
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
        for name in passed() {
            name.write(&mut out);
            out.push(b',');
        }
        end_list(&mut out);
        out.push(b']');
    } else {
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(br#","FailedNodes":{},"FailedAndUnresolvableNodes":{"#);
    for (name, code) in args.names.iter().zip(codes()).filter(|(_, code)| *code != 0) {
        name.write(&mut out);
        out.extend_from_slice(text(code));
    }
    end_list(&mut out);
    out.extend_from_slice(br#"},"Error":""}"#);
    out
}

/// Writes the HostPriorityList; `scores` is aligned with `args.names`, a missing one is 0.
pub fn prioritize_result(args: &ExtenderArgs<'_>, scores: &[u8]) -> Vec<u8> {
    // What follows a name, and what comes before the next.
    let most = scores.iter().copied().max().unwrap_or(0);
    let entries: Vec<Vec<u8>> = (0..=most)
        .map(|score| format!(r#","Score":{score}}},{{"Host":"#).into_bytes())
        .collect();
    let mut out = Vec::with_capacity(16 + args.names.len() * 56);
    out.extend_from_slice(br#"[{"Host":"#);
    let scores = scores.iter().copied().chain(std::iter::repeat(0));
    for (name, score) in args.names.iter().zip(scores) {
        name.write(&mut out);
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
