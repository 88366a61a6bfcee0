//! The crate's errors in the words of cel-go, which people know from Kubernetes' events.

use cel::{ExecutionError, Value};

pub(super) fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(_, Value::UInt(_), _) => "unsigned integer overflow".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Value::Int(i)) => format!("index out of bounds: {i}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::DuplicateKey(_) => "Failed with repeated key".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchOverload(e) => {
            let call = e.to_string().replace("found no matching overload for ", "");
            format!("no such overload: {call}")
        }
        ExecutionError::UnexpectedType { got, want } if want == "iterable" => {
            format!("got '{got}', expected iterable type")
        }
        ExecutionError::UnexpectedType { got, want } => format!("no such overload: got '{got}', expected '{want}'"),
        // These hold whole values, which may be long and are the author's own.
        ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnsupportedIndex(..) => "no such overload".to_owned(),
        ExecutionError::UnsupportedKeyType(_) => "unsupported key type".to_owned(),
        other => other.to_string().chars().take(300).collect(),
    }
}
