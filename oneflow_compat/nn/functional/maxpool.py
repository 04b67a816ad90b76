"""Deep path of the max pools."""

from .. import functional as _F

max_pool1d, max_pool2d, max_pool3d = _F.max_pool1d, _F.max_pool2d, _F.max_pool3d
