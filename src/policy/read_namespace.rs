//! Reads `namespaces`: whom a rule is for, and which classes and how many cards their pods may have.

use super::fields::{Field, Fields};
use super::names;
use super::read::{Reader, names_of};
use super::types::NamespaceRule;
use crate::model::Name;

impl Reader<'_> {
    pub(super) fn namespaces(&mut self, field: Field) -> Vec<NamespaceRule> {
        let rules = field.mappings(&mut self.errors).into_iter();
        rules.map(|raw| self.namespace(raw)).collect()
    }

    fn namespace(&mut self, mut raw: Fields) -> NamespaceRule {
        let matches = raw.field("match").needed(&mut self.errors);
        let at = matches.path.clone();
        let matches = matches.text_map(&mut self.errors);
        for (key, value) in &matches {
            let at = format!("{at}[{key:?}]");
            self.check(at.as_str(), key, names::qualified);
            self.check(at, value, names::label_value);
        }
        let default_class = self.name(raw.field("defaultClass"), names::dns_label);
        let allowed = raw.field("allowedClasses").texts(&mut self.errors);
        let allowed: Option<Vec<Name>> = allowed.map(|names| names.into_iter().map(Name::from).collect());
        let rule = NamespaceRule {
            matches: names_of(matches),
            default_class: self.default_class(&raw, default_class, allowed.as_deref()),
            allowed_classes: allowed,
            max_gpus_per_pod: raw.field("maxGpusPerPod").count(&mut self.errors),
            patch: self.patch(raw.field("patch")),
        };
        self.no_sharing(raw.field("sharing"));
        raw.close(&mut self.errors);
        rule
    }

    /// That of the rule, or the only one allowed.
    fn default_class(&mut self, raw: &Fields, default: Option<Name>, allowed: Option<&[Name]>) -> Option<Name> {
        let Some(allowed) = allowed else {
            return default;
        };
        let (at_default, at_allowed) = (raw.at("defaultClass"), raw.at("allowedClasses"));
        for (i, class) in allowed.iter().enumerate() {
            self.check(format!("{at_allowed}[{i}]"), class, names::dns_label);
        }
        match (allowed, &default) {
            ([], _) => self.error(at_allowed, "allows nothing: leave it out to allow every class"),
            ([only], None) => return Some(only.clone()),
            // Without one a pod that names no class could get a card of any class.
            (_, None) => self.error(
                at_default,
                "is needed where several classes are allowed, for pods that name none",
            ),
            (_, Some(class)) if !allowed.contains(class) => {
                self.error(at_default, format!("{class:?} is not in allowedClasses"));
            }
            _ => {}
        }
        default
    }
}
