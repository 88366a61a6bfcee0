//! The typing rules of single expressions, and how their violations are worded. No tree is walked here.

use cel::common::ast::LiteralValue;

use super::types::Type;

/// The type of a field, if the type has it.
pub(super) fn field(of: &Type, name: &str) -> Result<Type, String> {
    Ok(match (of, name) {
        (Type::Device, "driver") => Type::String,
        (Type::Device, "allowMultipleAllocations") => Type::Bool,
        (Type::Device, "attributes") => Type::map(Type::String, Type::map(Type::String, Type::Dyn)),
        (Type::Device, "capacity") => Type::map(Type::String, Type::map(Type::String, Type::Quantity)),
        (Type::Node, "labels") => Type::map(Type::String, Type::String),
        (Type::Device | Type::Node, _) => return Err(format!("undefined field '{name}'")),
        (Type::Map(_, value), _) => (**value).clone(),
        (t, _) if t.is_dynamic() => Type::Dyn,
        (t, _) => return Err(format!("type '{t}' does not support field selection")),
    })
}

/// An element marked `?` must be an optional, and counts as what is in it.
pub(super) fn inner(of: Type, optional: bool) -> Result<Type, String> {
    match of {
        Type::Optional(inner) if optional => Ok(*inner),
        other if optional && !other.is_dynamic() => Err(format!("expected type 'optional_type' but found '{other}'")),
        other => Ok(other),
    }
}

pub(super) fn homogeneous(known: Type, new: Type) -> Result<Type, String> {
    if known.same(&new) {
        Ok(known.join(new))
    } else {
        Err(format!("expected type '{known}' but found '{new}'"))
    }
}

pub(super) fn no_overload(name: &str, member: bool, types: &[Type]) -> String {
    let list = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    let applied = match types {
        [target, rest @ ..] if member => format!("{target}.({})", list(rest)),
        all => format!("({})", list(all)),
    };
    format!("found no matching overload for '{name}' applied to '{applied}'")
}

pub(super) fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Null => Type::Null,
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::UInt(_) => Type::Uint,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::String(_) => Type::String,
        LiteralValue::Bytes(_) => Type::Bytes,
    }
}
