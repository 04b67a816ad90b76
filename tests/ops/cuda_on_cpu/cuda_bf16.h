#pragma once
#include <torch/headeronly/util/BFloat16.h>
using __nv_bfloat16 = c10::BFloat16;
