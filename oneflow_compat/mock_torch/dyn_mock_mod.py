from .dummy import DynamicMockModule as DynamicMockModule
