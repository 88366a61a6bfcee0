//! What of a report is drawn: each scenario says it in a line or two, here it is found in the rows.

use serde_json::Value;

use crate::plot::{Line, Mark, Panel};
use crate::stats::median;
use crate::table::{at, section, text};

/// One panel.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// The report's field with the rows.
    pub(crate) rows: &'static str,
    /// What names a line: fields of a row.
    pub(crate) line: &'static [&'static str],
    /// The field that tells the series of a line apart; empty: what is shown does.
    pub(crate) series: &'static str,
    pub(crate) shown: Shown,
    pub(crate) logarithmic: bool,
}

pub(crate) enum Shown {
    /// (name, path) of spreads, or of numbers of which several rows of one name have one: dot: median, line: range.
    Spreads(&'static [(&'static str, &'static str)]),
    /// Paths of three numbers that grow: dot, thick line to the second, thin line to the third.
    Rising([&'static str; 3]),
}

impl Chart {
    /// Of the report's `rows`, on a linear scale.
    pub(crate) const fn spreads(
        title: &'static str,
        line: &'static [&'static str],
        series: &'static str,
        values: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            title,
            rows: "rows",
            line,
            series,
            shown: Shown::Spreads(values),
            logarithmic: false,
        }
    }

    /// Of other rows.
    pub(crate) const fn of(self, rows: &'static str) -> Self {
        Self { rows, ..self }
    }

    pub(crate) const fn logarithmic(self) -> Self {
        Self {
            logarithmic: true,
            ..self
        }
    }

    pub(crate) fn panel(&self, report: &Value) -> Panel {
        let mut lines: Vec<Line> = vec![];
        let mut samples: Vec<(String, String, Vec<f64>)> = vec![];
        for row in section(report, self.rows) {
            let names: Vec<String> = self.line.iter().map(|path| text(at(row, path))).collect();
            let (line, number) = (names.join(" "), |path: &str| at(row, path).as_f64());
            let series = |name: &str| match self.series {
                "" => name.to_owned(),
                field => text(at(row, field)),
            };
            match &self.shown {
                Shown::Rising([dot, thick, thin]) => {
                    let Some(dot) = number(dot) else { continue };
                    let [thick, thin] = [thick, thin].map(|path| number(path).unwrap_or(dot));
                    let mark = Mark {
                        series: series(""),
                        dot,
                        thick,
                        thin: [dot, thin],
                    };
                    push(&mut lines, line, mark);
                }
                Shown::Spreads(values) => {
                    for (name, path) in *values {
                        let value = at(row, path);
                        let several = section(value, "samples").iter().filter_map(Value::as_f64);
                        let these: Vec<f64> = several.chain(value.as_f64()).collect();
                        let key = (line.clone(), series(name));
                        match samples.iter_mut().find(|s| (&s.0, &s.1) == (&key.0, &key.1)) {
                            Some((.., all)) => all.extend(these),
                            None => samples.push((key.0, key.1, these)),
                        }
                    }
                }
            }
        }
        for (line, series, samples) in samples {
            let Some(dot) = median(&samples) else { continue };
            let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (thick, thin) = (dot, [least, most]);
            push(
                &mut lines,
                line,
                Mark {
                    series,
                    dot,
                    thick,
                    thin,
                },
            );
        }
        Panel {
            title: self.title.to_owned(),
            logarithmic: self.logarithmic,
            lines,
        }
    }
}

fn push(lines: &mut Vec<Line>, name: String, mark: Mark) {
    match lines.iter_mut().find(|l| l.name == name) {
        Some(line) => line.marks.push(mark),
        None => lines.push(Line {
            name,
            marks: vec![mark],
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stats::spread;

    const LINE: &[&str] = &["fleet", "level"];

    #[test]
    fn policies_are_the_series_of_a_line() {
        let row = |policy: &str, level: u32, values: &[f64]| json!({"fleet": "f", "level": level, "policy": policy, "v": [0, spread(values)]});
        let report = json!({"rows": [row("a", 1, &[4.0, 1.0]), row("b", 1, &[2.0]), row("a", 2, &[f64::NAN])]});
        let panel = Chart::spreads("t", LINE, "policy", &[("", "v/1")]).panel(&report);
        let mark = |series: &str, dot, thin| Mark {
            series: series.into(),
            dot,
            thick: dot,
            thin,
        };
        let expected = Line {
            name: "f 1".into(),
            marks: vec![mark("a", 2.5, [1.0, 4.0]), mark("b", 2.0, [2.0, 2.0])],
        };
        // Of the second level there is nothing to draw.
        assert_eq!(panel.lines, [expected]);
    }

    #[test]
    fn numbers_of_several_rows_are_one_mark() {
        let row = |n: f64| json!({"fleet": "f", "level": 1, "n": n});
        let panel = Chart::spreads("t", LINE, "", &[("rate", "n")]).panel(&json!({"rows": [row(3.0), row(1.0)]}));
        assert_eq!(panel.lines[0].marks.len(), 1);
        let mark = &panel.lines[0].marks[0];
        assert_eq!((&*mark.series, mark.dot, mark.thin), ("rate", 2.0, [1.0, 3.0]));
    }

    #[test]
    fn percentiles_rise() {
        let report = json!({"rows": [{"fleet": "f", "level": 1, "a": 1, "b": 2, "c": 3}, {"fleet": "g", "level": 1}]});
        let chart = Chart {
            shown: Shown::Rising(["a", "b", "c"]),
            ..Chart::spreads("t", LINE, "", &[])
        };
        let panel = chart.panel(&report);
        assert_eq!(panel.lines.len(), 1);
        let mark = &panel.lines[0].marks[0];
        assert_eq!((mark.dot, mark.thick, mark.thin), (1.0, 2.0, [1.0, 3.0]));
    }
}
