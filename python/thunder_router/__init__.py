"""thunder-router: schedules whole agent runs over SGLang workers."""
