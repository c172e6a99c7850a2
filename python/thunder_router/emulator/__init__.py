"""An emulated SGLang worker on thunder-sim's engine model. It says that it is one."""
