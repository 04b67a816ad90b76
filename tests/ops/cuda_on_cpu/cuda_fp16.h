#pragma once
#include <torch/headeronly/util/Half.h>
using __half = c10::Half;
