//! A small picture beside a table: a bar a row on a logarithmic scale, as SVG. Nothing of it is measured here.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

/// A row: its name, and values that grow: a dot at the first, lines to the others.
pub(crate) struct Bar {
    name: String,
    values: Vec<f64>,
}

impl Bar {
    pub(crate) fn new(name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        let (name, values) = (name.into(), values.into());
        Self { name, values }
    }
}

const NAMES: f64 = 330.0;
const WIDTH: f64 = 900.0;
const ROW: f64 = 16.0;
const TOP: f64 = 48.0;

/// The picture; `goals` are lines across it.
pub(crate) fn bars(title: &str, bars: &[Bar], goals: &[f64]) -> String {
    let shown = || bars.iter().flat_map(|b| &b.values).chain(goals).filter(|v| **v > 0.0);
    // Whole decades around what is there.
    let low = shown()
        .copied()
        .fold(f64::MAX, f64::min)
        .log10()
        .floor()
        .clamp(-9.0, 8.0);
    let high = shown()
        .copied()
        .fold(0.0, f64::max)
        .log10()
        .ceil()
        .clamp(low + 1.0, 9.0);
    let x = |value: f64| {
        let at = (value.max(f64::MIN_POSITIVE).log10() - low) / (high - low);
        NAMES + at.clamp(0.0, 1.0) * (WIDTH - NAMES - 20.0)
    };
    let bottom = TOP + ROW * bars.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"18\" font-size=\"14\">{}</text>\n",
        bottom + 10.0,
        escaped(title)
    );
    let mut line = |value: f64, colour: &str| {
        let (at, above) = (x(value), TOP - 8.0);
        // Writing into a String does not fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{above}\" y2=\"{bottom}\" stroke=\"{colour}\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{value}</text>",
            above - 3.0
        );
    };
    (low as i32..=high as i32).for_each(|decade| line(10_f64.powi(decade), "#bbb"));
    goals.iter().for_each(|goal| line(*goal, "#c33"));
    for (bar, row) in bars.iter().zip(0..) {
        let y = TOP + ROW * (f64::from(row) + 0.5);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            NAMES - 10.0,
            y + 4.0,
            escaped(&bar.name)
        );
        for (pair, width) in bar.values.windows(2).zip([4, 1, 1, 1]) {
            let (from, to) = (x(pair[0]), x(pair[1]));
            let _ = writeln!(
                svg,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#357\" stroke-width=\"{width}\"/>"
            );
        }
        if let Some(first) = bar.values.first() {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{y}\" r=\"4\" fill=\"#357\"/>",
                x(*first)
            );
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Into `FOLDER/NAME.svg`.
pub(crate) fn write(folder: &Path, name: &str, svg: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(format!("{name}.svg"));
    std::fs::write(&path, svg).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_the_scale_says() {
        let svg = bars("a < b", &[Bar::new("x & y", [1.0, 10.0])], &[0.1]);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
        // From 0.1 to 10: 1 is in the middle.
        let middle = (NAMES + WIDTH - 20.0) / 2.0;
        assert!(svg.contains(&format!("cx=\"{middle:.1}\"")), "{svg}");
        assert!(
            svg.contains(&format!("x2=\"{:.1}\" y1=\"{}\"", WIDTH - 20.0, TOP + ROW / 2.0)),
            "{svg}"
        );
    }

    #[test]
    fn nothing_to_draw_is_no_fault() {
        for values in [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY]] {
            assert!(bars("t", &[Bar::new("n", values)], &[]).ends_with("</svg>\n"));
        }
    }
}
