"""The numbers of OneFlow's element types, which programs of 0.1 to 0.5 and exporters import."""

(
    kInvalidDataType,
    kChar,
    kFloat,
    kDouble,
    kInt8,
    kInt32,
    kInt64,
    kUInt8,
    kOFRecord,
    kFloat16,
    kTensorBuffer,
    kBFloat16,
    kBool,
) = range(13)
kUInt16, kUInt32, kUInt64, kUInt128, kInt16, kInt128, kComplex32, kComplex64, kComplex128 = range(13, 22)
