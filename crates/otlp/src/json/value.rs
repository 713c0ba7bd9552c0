//! Attributes and their values in JSON: each value is an object that names its type.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::attributes::Attributes;
use crate::protobuf::float;

/// Collects attributes one by one: there may be a million, of which few are kept.
pub struct AttributeBuilder(pub Attributes);

impl<'de> Deserialize<'de> for AttributeBuilder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = AttributeBuilder;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of attributes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AttributeBuilder, A::Error> {
                let mut attributes = Attributes::default();
                while let Some(pair) = list.next_element::<Pair>()? {
                    attributes.put(pair.key, pair.value.0);
                }
                Ok(AttributeBuilder(attributes))
            }
        }

        deserializer.deserialize_seq(Pairs)
    }
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: AnyValue,
}

/// `AnyValue`: an object with one field that names the type of the value.
#[derive(Default)]
pub struct AnyValue(pub Value);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneField;

        impl<'de> Visitor<'de> for OneField {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its kind, such as {\"stringValue\": …}")
            }

            fn visit_unit<E: Error>(self) -> Result<AnyValue, E> {
                Ok(AnyValue::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue, A::Error> {
                let mut value = Value::Null;
                while let Some(kind) = map.next_key::<Cow<'de, str>>()? {
                    value = match &*kind {
                        "stringValue" | "boolValue" | "bytesValue" => map.next_value()?,
                        "intValue" => parse_integer(map.next_value()?),
                        "doubleValue" => parse_double(map.next_value()?),
                        "arrayValue" => {
                            let list = map.next_value::<List<AnyValue>>()?.values.unwrap_or_default();
                            list.into_iter().map(|item| item.0).collect()
                        }
                        "kvlistValue" => {
                            let pairs = map.next_value::<List<Pair>>()?.values.unwrap_or_default();
                            let fields: Map<_, _> =
                                pairs.into_iter().map(|pair| (pair.key, pair.value.0)).collect();
                            Value::Object(fields)
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                }
                Ok(AnyValue(value))
            }
        }

        deserializer.deserialize_any(OneField)
    }
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Option::default")]
    values: Option<Vec<T>>,
}

/// 64-bit numbers are written as text.
fn parse_integer(value: Value) -> Value {
    match &value {
        Value::String(text) => text.parse::<i64>().map_or(value, Value::from),
        _ => value,
    }
}

/// `NaN` and the infinities are written as text and stay text, as with protobuf. 1 becomes 1.0.
fn parse_double(value: Value) -> Value {
    match &value {
        Value::Number(number) => number.as_f64().map_or(value, float),
        Value::String(text) => match text.as_str() {
            "Infinity" => Value::from("inf"),
            "-Infinity" => Value::from("-inf"),
            _ => text.parse::<f64>().map_or(value, float),
        },
        _ => value,
    }
}
