//! The readers against what such tools print besides clean tables, and against mangled text. Real captures: tests/cli.

use proptest::prelude::*;

use super::read;
use crate::topology::{Link, Report, groups};

const FOUR: &str = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tSYS\tSYS\tPIX\t0-27\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tSYS\t0-27\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPHB\tSYS\t28-55\t1\t\tN/A
GPU3\tSYS\tSYS\tPHB\t X \tSYS\t28-55\t1\t\tN/A
NIC0\tPIX\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = bonded
";

/// The pairs 0-1, 0-2, … as words.
fn pairs(report: &Report) -> String {
    let n = report.cards.len();
    let all = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let words: Vec<String> = all.map(|(a, b)| report.link(a, b).to_string()).collect();
    words.join(" ")
}

fn numa(report: &Report) -> Vec<Option<u16>> {
    report.cards.iter().map(|c| c.numa_node).collect()
}

#[test]
fn the_same_table_however_it_is_printed() {
    let plain = read(&[FOUR]).expect("read");
    assert_eq!(pairs(&plain.report), "NV12 SYS SYS SYS SYS PHB");
    assert_eq!(numa(&plain.report), [Some(0), Some(0), Some(1), Some(1)]);
    let (table, _) = FOUR.split_once("\nLegend").expect("has one");
    for other in [
        FOUR.replace('\n', "\r\n"),
        FOUR.replace('\t', "   "),
        table.trim_start_matches('\t').to_owned(),
        table.trim_start_matches('\t').replace('\t', " "),
        FOUR.replace("\tGPU", "\u{1b}[4m\tGPU")
            .replace("NV12", "N\u{1b}[32mV1\u{1b}[0m2"),
        format!("WARNING: GPU0 and GPU1 are old\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n\n{FOUR}"),
        FOUR.replace("GPU2\tSYS", "WARNING: GPU1 is slow\nGPU2\tSYS"),
        FOUR.replace("NIC0", "mlx5_bond_0"),
    ] {
        let reading = read(&[&other]).expect("read");
        assert_eq!(reading.report, plain.report, "{other}");
        assert!(reading.doubts.is_empty(), "{other}: {:?}", reading.doubts);
    }
}

#[test]
fn nics_may_stand_first_and_a_card_alone() {
    let text =
        "ibs1\tGPU0\tGPU1\tCPU Affinity\nibs1\t X \tSYS\tPIX\nGPU0\tSYS\t X \tNODE\t0-7\nGPU1\tPIX\tNODE\t X \t0-7";
    assert_eq!(pairs(&read(&[text]).expect("read").report), "NODE");
    let one = read(&["GPU0 CPU Affinity NUMA Affinity\nGPU0 X 0-19 3"]).expect("read");
    assert_eq!(numa(&one.report), [Some(3)]);
}

#[test]
fn a_cell_that_cannot_be_read_is_unknown() {
    for (from, to, want) in [
        // garbage in the place of a cell, in either half
        ("GPU0\t X \tNV12", "GPU0\t X \t@@", "? SYS SYS SYS SYS PHB"),
        ("GPU1\tNV12", "GPU1\tNV0", "? SYS SYS SYS SYS PHB"),
        // empty
        ("GPU2\tSYS\tSYS", "GPU2\tSYS\t", "NV12 SYS SYS ? SYS PHB"),
        // a contradiction
        ("GPU1\tNV12", "GPU1\tSYS", "? SYS SYS SYS SYS PHB"),
        ("GPU1\tNV12", "GPU1\tNV11", "? SYS SYS SYS SYS PHB"),
        // a lost cell: what is behind it has moved
        ("GPU0\t X \tNV12\tSYS", "GPU0\t X \tNV12", "? ? ? SYS SYS PHB"),
        ("GPU2\tSYS\tSYS\t X ", "GPU2\tSYS\t X ", "NV12 ? SYS ? SYS ?"),
        // a short row, a missing one, one twice
        (
            "GPU3\tSYS\tSYS\tPHB\t X \tSYS\t28-55\t1\t\tN/A",
            "GPU3\tSYS\tSYS",
            "NV12 SYS ? SYS ? ?",
        ),
        (
            "GPU3\tSYS\tSYS\tPHB\t X \tSYS\t28-55\t1\t\tN/A\n",
            "",
            "NV12 SYS ? SYS ? ?",
        ),
        (
            "GPU2\tSYS",
            "GPU2\tNV1\tSYS\t X \tPHB\tSYS\nGPU2\tSYS",
            "NV12 ? SYS SYS SYS PHB",
        ),
        // the X itself: tabs still count
        (
            "GPU3\tSYS\tSYS\tPHB\t X ",
            "GPU3\tSYS\tSYS\tPHB\t?",
            "NV12 SYS SYS SYS SYS PHB",
        ),
    ] {
        assert!(FOUR.contains(from), "{from}");
        let text = FOUR.replacen(from, to, 1);
        let reading = read(&[&text]).expect("read");
        assert_eq!(pairs(&reading.report), want, "{text}");
        let unknown = want.matches('?').count();
        assert_eq!(
            reading.doubts.iter().filter(|d| d.starts_with("link ")).count(),
            unknown
        );
    }
}

#[test]
fn cells_that_ran_together() {
    for (from, to) in [
        ("GPU0\t X \tNV12\tSYS", "GPU0\t X \tNV12SYS"),
        ("GPU0\t X \t", "GPU0X"),
        ("SYS\t28-55", "SYS28-55"),
        ("\tGPU0\tGPU1", "\tGPU0GPU1"),
    ] {
        let text = FOUR.replacen(from, to, 1);
        assert_eq!(
            pairs(&read(&[&text]).expect("read").report),
            "NV12 SYS SYS SYS SYS PHB",
            "{text}"
        );
    }
    // NV12 and 0-27, or NV1 and 20-27?
    let text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV120-27\nGPU1\tNV12\t X \t0-27";
    assert_eq!(pairs(&read(&[text]).expect("read").report), "?");
}

#[test]
fn seventy_two_cards() {
    let n = 72;
    let mut text: String = (0..n).map(|i| format!("\tGPU{i}")).collect();
    for a in 0..n {
        text += &format!("\nGPU{a}");
        (0..n).for_each(|b| text += if a == b { "\t X " } else { "\tNV18" });
    }
    let reading = read(&[&text]).expect("read");
    assert_eq!(groups(&reading.report).cliques, [(0..n).collect::<Vec<_>>()]);
    let crowd: String = (0..200).map(|i| format!("\tGPU{i}")).collect();
    assert!(read(&[&format!("{crowd}\nGPU0\t X ")]).is_err());
}

#[test]
fn what_is_no_output_of_such_a_tool_is_an_error() {
    for text in [
        "",
        "garbage",
        "command not found",
        "GPU",
        "{\"a\": 1}",
        "[{\"name\": 1}]",
        "a,b,c\n1,2,3",
    ] {
        assert!(read(&[text]).is_err(), "{text}");
    }
    let none = read(&["No devices were found\n"]).expect("an answer");
    assert_eq!(none, super::Reading::default());
}

const QUERY: &str = "index, uuid, name, enforced.power.limit [W], power.limit [W], pci.bus_id
0, GPU-aaaa, NVIDIA RTX PRO 6000 Blackwell Server Edition, 600.00 W, 600.00 W, 00000000:1B:00.0
1, GPU-bbbb, NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, [N/A], 300.00 W, 00000000:3D:00.0
3, GPU-cccc, Tesla, by two, [Not Supported], [N/A], [N/A]
";

#[test]
fn a_query_with_header() {
    let reading = read(&[QUERY]).expect("read");
    assert_eq!(reading.numbers, [0, 1, 3]);
    let cards = &reading.report.cards;
    let watts: Vec<_> = cards.iter().map(|c| c.power_limit_watts).collect();
    assert_eq!(watts, [Some(600), Some(300), None]);
    assert_eq!(cards[1].pci_bus_id.as_deref(), Some("0000:3d:00.0"));
    assert_eq!(cards[2].name.as_deref(), Some("Tesla, by two"));
    assert_eq!(cards[2].uuid.as_deref(), Some("GPU-cccc"));
    assert_eq!(cards[2].pci_bus_id, None);
    let quoted = "name,index,uuid\r\n\"a \"\"b\"\", c\",0,GPU-a\r\n";
    let reading = read(&[quoted]).expect("read");
    assert_eq!(reading.report.cards[0].name.as_deref(), Some("a \"b\", c"));
}

#[test]
fn a_query_without_header_or_units() {
    let text = "0, GPU-aaaa, NVIDIA H200, 700.00, 700.00, 00000000:1B:00.0\n1, GPU-bbbb, X, Y, [N/A], 300.00, 00000000:3D:00.0";
    let cards = read(&[text]).expect("read").report.cards;
    assert_eq!(
        (cards[0].name.as_deref(), cards[0].power_limit_watts),
        (Some("NVIDIA H200"), Some(700))
    );
    // The limit was not said; the default is not the limit.
    assert_eq!(
        (cards[1].name.as_deref(), cards[1].power_limit_watts),
        (Some("X, Y"), None)
    );
    assert_eq!(cards[1].pci_bus_id.as_deref(), Some("0000:3d:00.0"));
}

#[test]
fn lines_that_cannot_be_read_are_said() {
    let text = format!("{QUERY}Unable to determine the device handle for GPU2\n4, GPU-dddd\n");
    let reading = read(&[&text]).expect("read");
    assert_eq!(reading.numbers, [0, 1, 3]);
    assert_eq!(
        reading
            .doubts
            .iter()
            .filter(|d| d.starts_with("cannot read the line"))
            .count(),
        2
    );
}

#[test]
fn matrix_and_query_together() {
    let query = "index, uuid\n0, GPU-a\n1, GPU-b\n2, GPU-c\n3, GPU-d\n4, GPU-e\n";
    let reading = read(&[FOUR, query]).expect("read");
    assert_eq!(reading.report.cards[2].uuid.as_deref(), Some("GPU-c"));
    assert_eq!(reading.report.cards[2].numa_node, Some(1));
    assert_eq!(pairs(&reading.report), "NV12 SYS SYS ? SYS SYS ? PHB ? ?");
    // Two lists that do not speak of the same cards.
    let other = "index, uuid\n0, GPU-z\n";
    let clash = read(&[query, other]).expect("read");
    assert_eq!(clash.report.cards[0].uuid, None);
    assert!(clash.doubts.iter().any(|d| d.starts_with("card 0: ")));
}

#[test]
fn columns_and_cards_that_are_missing_are_said() {
    let row = "0, GPU-a, X, 300.00 W, 0000:01:00.0\n1, GPU-b, X, 300.00 W, 0000:02:00.0\n";
    let wanted = "wanted is --query-gpu=index,uuid,name,enforced.power.limit,power.limit,pci.bus_id, or as much of it as there is";
    let has =
        |head: &str, missing: &str| format!("no column {missing} in the list of cards, which has {head}: {wanted}");
    let limit = "enforced.power.limit or power.limit";
    for (head, missing) in [
        ("index, uuid, name, power.limit [W], pci.bus_id", None),
        ("index, gpu_uuid, gpu_name, enforced.power.limit [W], x", None),
        ("index, uuid, name, power.limt [W], pci.bus_id", Some(limit.to_owned())),
        (
            "index, a, b, power.limit [W], c",
            Some("uuid or pci.bus_id, and none name".to_owned()),
        ),
    ] {
        let reading = read(&[&format!("{head}\n{row}")]).expect("read");
        let want: Vec<String> = missing.iter().map(|m| has(head, m)).collect();
        // Of the links nothing was given.
        let doubts: Vec<&String> = reading.doubts.iter().filter(|d| !d.starts_with("link ")).collect();
        assert_eq!(doubts, want.iter().collect::<Vec<_>>(), "{head}");
    }
    let bare = read(&[&row.replace(", 300.00 W", "")]).expect("read");
    let no_watts = format!("no watts in the list of cards, which has no header: {wanted}");
    assert!(bare.doubts.contains(&no_watts), "{:?}", bare.doubts);
    assert!(!read(&[row]).expect("read").doubts.iter().any(|d| d.starts_with("no ")));
    let query = format!("index, uuid, name, power.limit [W], pci.bus_id\n{row}");
    let reading = read(&[FOUR, &query]).expect("read");
    let other =
        "the link matrix is of cards 0, 1, 2, 3 and the list of cards of 0, 1: are both of this machine, and whole?";
    assert_eq!(reading.doubts, [other]);
}

#[test]
fn amd_smi() {
    let topology = r#"[
        {"gpu": 0, "bdf": "0000:05:00.0", "links": [
            {"gpu": 0, "link_type": "SELF"}, {"gpu": 2, "link_type": "PCIE", "link_status": "ENABLED"},
            {"gpu": 1, "link_type": "XGMI", "link_status": "ENABLED"}]},
        {"gpu": 1, "bdf": "0000:26:00.0", "links": [
            {"gpu": 0, "link_type": "XGMI"}, {"gpu": 2, "link_type": "UNKNOWN"}]},
        {"gpu": 2, "bdf": "0000:46:00.0", "links": [{"gpu": 0, "link_type": "PCIE"}, {"gpu": 1, "link_type": "XGMI"}]}]"#;
    let fixed = r#"{"gpu_data": [
        {"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "numa": {"node": 0},
         "limit": {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, "socket_power_limit": {"value": 650, "unit": "W"}}}},
        {"gpu": 1, "limit": {"socket_power": {"value": 750, "unit": "W"}}},
        {"gpu": 2, "limit": {"ppt0": {"socket_power_limit": "N/A"}}, "numa": {"node": 1}}]}"#;
    let reading = read(&[fixed, topology]).expect("read");
    assert_eq!(pairs(&reading.report), "XGMI SYS ?");
    let cards = &reading.report.cards;
    let watts: Vec<_> = cards.iter().map(|c| c.power_limit_watts).collect();
    assert_eq!(watts, [Some(650), Some(750), None]);
    assert_eq!(cards[0].name.as_deref(), Some("AMD Instinct MI300X"));
    assert_eq!(cards[1].pci_bus_id.as_deref(), Some("0000:26:00.0"));
    // Before ROCm 6.4; no NUMA node, so nobody knows how far PCIe is.
    let old =
        r#"[{"gpu": 0, "link_type": {"gpu_0": "SELF", "gpu_1": "PCIE"}}, {"gpu": 1, "link_type": {"gpu_0": "PCIE"}}]"#;
    assert_eq!(pairs(&read(&[old]).expect("read").report), "?");
}

#[test]
fn rocm_smi() {
    let json = r#"WARNING: AMD GPU device(s) is/are in a low-power state.
        {"card0": {"Unique ID": "0xabc", "PCI Bus": "0000:0C:00.0", "Card Series": "MI210",
                   "Max Graphics Package Power (W)": "300.0", "(Topology) Numa Node": "0"},
         "card1": {"(Topology) Numa Node": "0"}, "card2": {},
         "system": {"(Topology) Link type between DRM devices 0 and 1": "PCIE",
                    "(Topology) Link type between DRM devices 0 and 2": "XGMI",
                    "(Topology) Weight between DRM devices 0 and 1": "40"}}"#;
    let reading = read(&[json]).expect("read");
    assert_eq!(pairs(&reading.report), "NODE XGMI ?");
    let card = &reading.report.cards[0];
    assert_eq!((card.power_limit_watts, card.numa_node), (Some(300), Some(0)));
    assert_eq!(card.pci_bus_id.as_deref(), Some("0000:0c:00.0"));

    let text = "
======================= ROCm System Management Interface =======================
=========================== Weight between two GPUs ============================
       GPU0         GPU1         GPU2
GPU0   0            15           15

========================== Link Type between two GPUs ==========================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         XGMI
GPU1   XGMI         0            PCIE
GPU2   XGMI         PCIE         0

================================== Numa Nodes ==================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[1]\t\t: (Topology) Numa Node: 0
GPU[2]\t\t: (Topology) Numa Node: 1
GPU[2]\t\t: Max Graphics Package Power (W): 560.0
";
    let reading = read(&[text]).expect("read");
    assert_eq!(pairs(&reading.report), "XGMI XGMI SYS");
    assert_eq!(reading.report.cards[2].power_limit_watts, Some(560));
}

/// Lines of a table with some characters exchanged, dropped or put in, some lines lost.
fn mangled() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "",
        "\t",
        " ",
        "\n",
        "\u{1b}[4m",
        "X",
        "NV",
        "NV12",
        "SYS",
        "GPU",
        "GPU1",
        "0",
        "-",
        ",",
        "é",
        "\u{1b}[",
        "N/A",
        "\r",
    ]);
    prop::collection::vec((any::<prop::sample::Index>(), piece), 1..8).prop_map(|edits| {
        let mut text: Vec<char> = FOUR.chars().collect();
        for (at, piece) in edits {
            let at = at.index(text.len());
            text.splice(at..=at, piece.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn nothing_panics(text in "(\\PC|[\\x00-\\x1f\u{1b}\t\nGPUNVX0-9,]){0,300}") {
        let _ = read(&[&text]);
    }

    #[test]
    fn nothing_mangled_panics_and_reports_are_whole(text in mangled(), other in mangled()) {
        for texts in [vec![text.as_str()], vec![&text, QUERY], vec![&text, &other]] {
            if let Ok(reading) = read(&texts) {
                let report = reading.report;
                let n = report.cards.len();
                prop_assert_eq!(report.links.len(), n * n);
                for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
                    prop_assert_eq!(report.link(a, b), report.link(b, a));
                    prop_assert!(a != b || report.link(a, b) == Link::Unknown);
                }
            }
        }
    }

    /// One edit makes cells unknown at the worst. It never invents an NVLink between cards that have none.
    #[test]
    fn one_lost_field_never_makes_a_wrong_cell(line in 1_usize..5, field in 1_usize..9, empty: bool) {
        let mut lines: Vec<Vec<&str>> = FOUR.lines().map(|l| l.split('\t').collect()).collect();
        prop_assume!(field < lines[line].len());
        if empty { lines[line][field] = ""; } else { lines[line].remove(field); }
        let text: Vec<String> = lines.iter().map(|l| l.join("\t")).collect();
        let report = read(&[&text.join("\n")]).map_err(TestCaseError::fail)?.report;
        let truth = read(&[FOUR]).map_err(TestCaseError::fail)?.report;
        for (found, want) in report.links.iter().zip(&truth.links) {
            prop_assert!(found == want || *found == Link::Unknown, "{} for {}", found, want);
        }
    }
}
