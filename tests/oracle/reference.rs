//! Is there any valid answer at all? Tries every combination, asking the checker after each request. Slow and simple:
//! for deciding who is right where the two allocators differ.

use serde_json::{Value, json};

use super::case::{Case, items, requests, text};
use super::check::violations_in;
use super::upstream::Matches;
use super::world::{World, reaches};

/// Rules that more devices never mend, so that a broken one ends a branch.
const LASTING: [&str; 9] = [
    "limit",
    "double",
    "capacity",
    "counters",
    "distinct",
    "match",
    "constraint",
    "taint",
    "broken",
];
const LIMIT: usize = 4000;

struct Search<'a> {
    case: &'a Case,
    matches: &'a Matches,
    world: World<'a>,
    /// Claim, name of the request, its alternatives as (full name, what is asked).
    steps: Vec<(usize, Vec<(String, &'a Value)>)>,
    checks: usize,
}

/// None: too many combinations to say.
pub(crate) fn feasible(case: &Case, matches: &Matches) -> Option<bool> {
    let mut steps = vec![];
    for (c, claim) in case.list("claims").iter().enumerate() {
        for request in items(&claim["spec"]["devices"]["requests"]) {
            let of = requests(claim)
                .into_iter()
                .filter(|(.., parent)| *parent == text(&request["name"]));
            steps.push((c, of.map(|(full, ask, _)| (full, ask)).collect()));
        }
    }
    let mut search = Search {
        case,
        matches,
        world: World::of(case),
        steps,
        checks: 0,
    };
    // Some things are an error of the whole attempt wherever they stand, even in an alternative nobody chooses.
    for (_, alternatives) in &search.steps {
        for (_, ask) in alternatives {
            let class = |c: &Value| c["metadata"]["name"] == ask["deviceClassName"];
            let all_of_broken = ask["allocationMode"] == "All" && !search.world.broken.is_empty();
            if all_of_broken || !case.list("classes").iter().any(class) {
                return Some(false);
            }
        }
    }
    if selector_fails(case, &search.world, matches) {
        return None; // which devices upstream looks at before it stops is not for this reference to say
    }
    let empty = vec![json!({"devices": {"results": []}}); case.list("claims").len()];
    search.step(0, &empty)
}

/// A selector fails on a device upstream may look at: any device of a slice that has one the node sees.
pub(crate) fn selector_fails(case: &Case, world: &World<'_>, matches: &Matches) -> bool {
    let near = |id: &String| {
        world
            .devices
            .get(id)
            .is_some_and(|f| reaches(&f.slice["spec"], &case.doc["node"]))
    };
    matches
        .values()
        .any(|row| row.iter().any(|(id, m)| m.is_string() && near(id)))
}

impl Search<'_> {
    fn step(&mut self, at: usize, so_far: &[Value]) -> Option<bool> {
        let Some((claim, alternatives)) = self.steps.get(at).cloned() else {
            return Some(true);
        };
        for (full, ask) in alternatives {
            let name = text(&self.case.list("claims")[claim]["metadata"]["name"]);
            let row = self.matches.get(&format!("{name}/{full}"));
            let matching = self
                .world
                .devices
                .iter()
                .filter(|(id, f)| f.visible && row.and_then(|r| r.get(*id)) == Some(&json!(true)));
            let ids: Vec<String> = matching.map(|(id, _)| id.clone()).collect();
            if ask["allocationMode"] == "All" {
                // Which are all is for the checker to say: those that are large enough.
                let all = super::check::all_of(&self.world, self.matches, &self.case.list("claims")[claim], &full, ask);
                let all: Vec<_> = all.into_iter().collect();
                if !all.is_empty()
                    && self.world.broken.is_empty()
                    && self.attempt(at, so_far, claim, &full, ask, &all)?
                {
                    return Some(true);
                }
                continue;
            }
            let count = usize::try_from(ask["count"].as_u64().unwrap_or(1)).ok()?;
            for chosen in combinations(&ids, count) {
                if self.attempt(at, so_far, claim, &full, ask, &chosen)? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    fn attempt(
        &mut self,
        at: usize,
        so_far: &[Value],
        claim: usize,
        full: &str,
        ask: &Value,
        ids: &[String],
    ) -> Option<bool> {
        self.checks += 1;
        if self.checks > LIMIT {
            return None;
        }
        let mut next = so_far.to_vec();
        for id in ids {
            let parts: Vec<_> = id.split('/').collect();
            let mut result = json!({"request": full, "driver": parts[0], "pool": parts[1], "device": parts[2]});
            if ask["adminAccess"] == true {
                result["adminAccess"] = json!(true);
            }
            next[claim]["devices"]["results"].as_array_mut()?.push(result);
        }
        let broken = violations_in(&self.world, self.case, self.matches, &next);
        if broken
            .iter()
            .any(|v| LASTING.iter().any(|rule| v.starts_with(&format!("{rule}:"))))
        {
            return Some(false);
        }
        self.step(at + 1, &next)
    }
}

/// Every choice of `count` of them, in order.
fn combinations(of: &[String], count: usize) -> Vec<Vec<String>> {
    if count == 0 {
        return vec![vec![]];
    }
    let mut all = vec![];
    for (i, first) in of.iter().enumerate() {
        for mut rest in combinations(&of[i + 1..], count - 1) {
            rest.insert(0, first.clone());
            all.push(rest);
        }
    }
    all
}
